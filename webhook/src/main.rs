//! `bundle-webhook`: parses its arguments and runs the pod.

use std::process::ExitCode;

use bundle_webhook::BoxError;
use bundle_webhook::clients::cluster;
use bundle_webhook::clients::registries::Registries;
use bundle_webhook::config::args::Args;
use bundle_webhook::config::settings::Settings;
use bundle_webhook::signals::Signals;
use bundle_webhook::telemetry::logs;
use bundle_webhook::{chain, run};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// Number of worker threads. A small number is sufficient, because reviews are short and reconciles
/// mostly wait. Each thread needs memory.
const WORKERS: usize = 2;
/// Maximum number of threads for blocking work. DNS lookups, parsing and transfers have smaller
/// limits of their own, so they never wait because of this limit.
const MAX_BLOCKING_THREADS: usize = 128;

fn main() -> ExitCode {
    // All TLS connections need the same crypto provider. This call fails only if a provider is
    // already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let settings = match Settings::from_args(Args::parse()) {
        Ok(settings) => settings,
        Err(error) => wrong_use(&error),
    };
    if let Err(error) = logs::start(settings.log_format, &settings.log_level) {
        wrong_use(&error);
    }
    match run(settings) {
        Ok(()) => {
            tracing::info!("bundle-webhook has stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = chain(error.as_ref()), "bundle-webhook failed");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: Settings) -> Result<(), BoxError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen()?;
        let clients = cluster::connect(&settings).await?;
        let registries = Registries::new(
            settings.registry_ca.clone(),
            settings.registries_conf.as_slice(),
        )?;
        let shutdown = CancellationToken::new();
        tokio::select! {
            ended = run::run(settings, clients, registries, shutdown.clone()) => Ok(ended?),
            () = signals.second(shutdown) => Err("a second signal stopped the shutdown".into()),
        }
    });
    // Tasks that are still running are aborted.
    runtime.shutdown_background();
    ended
}

fn wrong_use(error: &(dyn std::error::Error + 'static)) -> ! {
    Args::command()
        .error(ErrorKind::ValueValidation, chain(error))
        .exit()
}
