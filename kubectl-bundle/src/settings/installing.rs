//! Settings of `install` and `uninstall`.

use bundle_core::diagnostic::{Finding, codes};

use super::writing::{dry_run, wait};
use super::{Environment, cluster, registry, unusable};
use crate::cluster::apply::DryRun;
use crate::commands::webhook::install::{self, Install, Values};
use crate::commands::webhook::uninstall::{self, Uninstall};
use crate::failure::Outcome;
use crate::system::files;

/// The settings of `install`.
pub(crate) fn install(args: install::Arguments, environment: &Environment) -> Outcome<Install> {
    no_names(&args.names, "install", "kubectl bundle deploy NAME REF")?;
    let dry_run = dry_run(args.dry_run);
    if args.output.is_some() && dry_run == DryRun::None {
        return Err(unusable("--output", "only a dry run prints objects")
            .hint("add --dry-run=client or --dry-run=server")
            .into());
    }
    let values = match &args.values {
        None => Values::default(),
        Some(path) => Values::parse(&files::read(path)?, &path.display().to_string())?,
    };
    let image = args.image.or_else(|| values.image()).ok_or_else(|| {
        unusable(
            "--image",
            "no image of bundle-webhook is published yet, so --image is required",
        )
        .hint("build one, push it, and name it by its digest: --image REGISTRY/REPOSITORY@sha256:DIGEST")
    })?;
    let is_pinned = registry::reference(&image)?.digest().is_some();
    Ok(Install {
        image,
        is_pinned,
        values,
        namespace: args.system_namespace,
        dry_run,
        wait: wait(args.wait, &args.timeout)?,
        format: args.output.map(Into::into),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

/// The settings of `uninstall`.
pub(crate) fn uninstall(
    args: uninstall::Arguments,
    environment: &Environment,
) -> Outcome<Uninstall> {
    no_names(&args.names, "uninstall", "kubectl bundle delete NAME")?;
    Ok(Uninstall {
        deployments: args.bundle_deployments,
        namespace: args.system_namespace,
        wait: wait(true, &args.timeout)?,
        dry_run: dry_run(args.dry_run),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

/// Refuses names: other tools install packages with this verb.
fn no_names(names: &[String], verb: &str, meant: &str) -> Outcome {
    let Some(name) = names.first() else {
        return Ok(());
    };
    Err(Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("`{verb}` is about bundle-webhook itself and takes no name, but got `{name}`"),
    )
    .hint(format!("for a bundle use {meant}"))
    .into())
}
