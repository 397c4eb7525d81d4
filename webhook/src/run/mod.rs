//! The life cycle of the pod: starts its tasks, waits for them, and ends them.

mod reserve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_server::ServerTooOld;
use crate::certs::Resolver;
use crate::clients::cluster::ReplicaClients;
use crate::clients::registries::Registries;
use crate::config::settings::Settings;
use crate::content_service::callers::Callers;
use crate::content_service::{self, ContentService};
use crate::lease::Election;
use crate::readiness::{Gate, Readiness};
use crate::server::guard;
use crate::server::health::{self, Health};
use crate::server::listener;
use crate::server::tls_listener::{ShutdownPeriods, TlsCertificates};
use crate::server::{admission_listener, content_listener};
use crate::shared::Shared;
use crate::telemetry::metrics::Metrics;
use crate::{BoxError, api_server, certs, reconcile, watches};

/// Time limit for tasks to end, in addition to the time limit for reviews in progress.
const END_MARGIN: Duration = Duration::from_secs(5);

/// The reason why the process ends early.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the fields")]
pub enum RunError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("the {task} task failed")]
    Failed {
        task: &'static str,
        source: BoxError,
    },
    #[error("the {task} task ended unexpectedly")]
    Ended { task: &'static str },
    #[error("a task panicked or was cancelled")]
    Joined { source: tokio::task::JoinError },
    #[error("tasks did not end in time: {left} remain")]
    Late { left: usize },
}

type Tasks = JoinSet<(&'static str, Result<(), BoxError>)>;

/// A result of a task, which is converted to `Result<(), BoxError>`.
trait TaskResult {
    fn result(self) -> Result<(), BoxError>;
}

impl TaskResult for () {
    fn result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> TaskResult for Result<(), E> {
    fn result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// The result of a task. `None` means that the task never started.
impl<T: TaskResult> TaskResult for Option<T> {
    fn result(self) -> Result<(), BoxError> {
        self.map_or(Ok(()), TaskResult::result)
    }
}

fn spawn<F>(tasks: &mut Tasks, name: &'static str, task: F)
where
    F: Future<Output: TaskResult> + Send + 'static,
{
    tasks.spawn(async move { (name, task.await.result()) });
}

/// Runs until `shutdown` or until a task ends. Then ends all other tasks in order.
pub async fn run(
    settings: Settings,
    clients: ReplicaClients,
    registries: Registries,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let readiness = Arc::new(Readiness::default());
    let metrics = Metrics::default();
    let end = settings.drain_delay + settings.drain_timeout + END_MARGIN;
    let mut tasks = Tasks::new();
    // The health endpoint ends after all other tasks.
    let last = CancellationToken::new();
    let listen =
        |address| listener::bind(address).map_err(|source| RunError::Listen { address, source });
    let health_listener = listen(settings.health_listen)?;
    let listeners = Listeners {
        admission: listen(settings.listen)?,
        content: listen(settings.content_listen)?,
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        admission = %settings.listen,
        content = %settings.content_listen,
        health = %settings.health_listen,
        identity = settings.identity,
        "bundle-webhook starts"
    );
    let pages = Health {
        readiness: readiness.clone(),
        metrics: metrics.clone(),
    };
    let serving = health::serve(health_listener, pages, last.clone());
    spawn(&mut tasks, "health", serving);
    let prepared = tokio::select! {
        () = shutdown.cancelled() => None,
        shared = prepare(settings, clients, registries, metrics, readiness.clone()) => Some(shared),
    };
    if let Some(shared) = &prepared {
        start(&mut tasks, shared, listeners, &shutdown);
    }
    let ended = join(tasks, &readiness, &shutdown, &last, end).await;
    if let Some(shared) = prepared {
        shared.attempts.close();
    }
    ended
}

/// Creates the shared state. Waits until the API server is reachable.
async fn prepare(
    settings: Settings,
    clients: ReplicaClients,
    registries: Registries,
    metrics: Metrics,
    readiness: Arc<Readiness>,
) -> Arc<Shared> {
    let key = crate::retry::until_success("read or create the stamp key", || {
        certs::stamp_key(clients.replica.own(), &settings.state_namespace)
    })
    .await;
    Arc::new(Shared::new(
        settings, clients, registries, metrics, readiness, key,
    ))
}

/// The listeners that need the shared state.
struct Listeners {
    admission: TcpListener,
    content: TcpListener,
}

fn start(
    tasks: &mut Tasks,
    shared: &Arc<Shared>,
    listeners: Listeners,
    shutdown: &CancellationToken,
) {
    let settings = &shared.settings;
    let resolver = Arc::new(Resolver::default());
    let keeping = certs::keep(shared.clone(), resolver.clone(), shutdown.clone());
    spawn(tasks, "certificates", keeping);

    let drain = ShutdownPeriods {
        delay: settings.drain_delay,
        timeout: settings.drain_timeout,
    };
    let deadline = settings.review_deadline;
    let guarded = guard::gate_and_router(shared.clone(), crate::admission::router(shared));
    let access = TlsCertificates {
        resolver: resolver.clone(),
        client_ca_file: settings.client_ca_file.clone(),
    };
    let listener = listeners.admission;
    let serving =
        admission_listener::serve(listener, guarded, access, deadline, drain, shutdown.clone());
    spawn(tasks, "admission", serving);

    let callers = Callers::new(shared.client());
    let (archives, uploads) = (shared.leader_archives.clone(), shared.uploads.clone());
    let paths = settings.content.paths.clone();
    let content = ContentService::new(callers, paths, archives, uploads);
    let gated = (content_service::gate, content_service::router(content));
    let access = TlsCertificates {
        resolver,
        client_ca_file: None,
    };
    let serving =
        content_listener::serve(listeners.content, gated, access, drain, shutdown.clone());
    spawn(tasks, "content", serving);

    // Tasks that read the project's own kinds wait until the API server serves these kinds.
    let served = CancellationToken::new();
    let discovery = {
        let (shared, shutdown, served) = (shared.clone(), shutdown.clone(), served.clone());
        async move {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                supported = api_server::wait(&shared) => supported?,
            }
            served.cancel();
            api_server::refresh(shared, shutdown).await;
            Ok::<(), ServerTooOld>(())
        }
    };
    spawn(tasks, "API server", discovery);
    let classes = watches::classes(shared.clone(), shutdown.clone());
    let classes = after(served.clone(), shutdown.clone(), classes);
    spawn(tasks, "classes", classes);
    let policies = watches::policies(shared.clone(), shutdown.clone());
    let policies = after(served.clone(), shutdown.clone(), policies);
    spawn(tasks, "policies", policies);
    let reconciling = lead(shared.clone(), shutdown.clone());
    let reconciling = after(served, shutdown.clone(), reconciling);
    spawn(tasks, "reconciler", reconciling);
}

/// Reconciles while this replica is the leader.
async fn lead(shared: Arc<Shared>, shutdown: CancellationToken) -> Result<(), BoxError> {
    let settings = &shared.settings;
    let Some(duration) = settings.lease_duration else {
        shared.fence().open();
        shared.metrics.leading(true);
        shared.readiness.open(Gate::Lease);
        return Box::pin(run_leader_tasks(shared.clone(), shutdown)).await;
    };
    let leases: Api<Lease> = Api::namespaced(shared.client(), &settings.namespace);
    let identity = settings.identity.clone();
    let (fence, metrics) = (shared.fence().clone(), shared.metrics.clone());
    let readiness = shared.readiness.clone();
    let on_access = move || readiness.open(Gate::Lease);
    Election::new(leases, identity, duration, fence, metrics, on_access)
        .lead(shutdown, |stop| run_leader_tasks(shared.clone(), stop))
        .await
}

/// Runs the tasks of the leader until `stop`.
async fn run_leader_tasks(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    tokio::select! {
        ended = reconcile::run(shared.clone(), stop) => ended,
        () = watches::write_ready_conditions(shared) => Ok(()),
    }
}

/// Runs `task` after `before` is cancelled. Returns `None` if `shutdown` is cancelled first.
async fn after<T>(
    before: CancellationToken,
    shutdown: CancellationToken,
    task: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        () = before.cancelled() => Some(task.await),
        () = shutdown.cancelled() => None,
    }
}

/// Waits for all tasks. When the first task ends or `shutdown` is cancelled, ends all other tasks.
/// The health endpoint ends last. Returns the first error.
async fn join(
    mut tasks: Tasks,
    readiness: &Readiness,
    shutdown: &CancellationToken,
    last: &CancellationToken,
    end: Duration,
) -> Result<(), RunError> {
    let mut outcome = Ok(());
    let mut late = None;
    loop {
        let limit = async {
            match late {
                Some(late) => tokio::time::sleep_until(late).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled(), if late.is_none() => {
                tracing::info!("shutting down");
                readiness.drain();
                late = Some(Instant::now() + end);
            }
            () = limit => return outcome.and(Err(RunError::Late { left: tasks.len() })),
            joined = tasks.join_next() => {
                let reason = match joined {
                    None => return outcome,
                    Some(Err(source)) => Err(RunError::Joined { source }),
                    Some(Ok((task, Err(source)))) => Err(RunError::Failed { task, source }),
                    Some(Ok((task, Ok(())))) if !shutdown.is_cancelled() => {
                        Err(RunError::Ended { task })
                    }
                    Some(Ok(_)) => Ok(()),
                };
                outcome = outcome.and(reason);
                shutdown.cancel();
            }
        }
        if shutdown.is_cancelled() && tasks.len() <= 1 {
            last.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Starts a task for a test. The task ends when its token is cancelled.
    fn spawn_until_cancelled(tasks: &mut Tasks, name: &'static str, token: &CancellationToken) {
        spawn(tasks, name, token.clone().cancelled_owned());
    }

    #[tokio::test]
    async fn shutdown_ends_all_tasks_and_health_last() {
        let (shutdown, last) = (CancellationToken::new(), CancellationToken::new());
        let readiness = Readiness::default();
        let mut tasks = Tasks::new();
        spawn_until_cancelled(&mut tasks, "health", &last);
        spawn_until_cancelled(&mut tasks, "admission", &shutdown);
        shutdown.cancel();
        join(tasks, &readiness, &shutdown, &last, LONG)
            .await
            .unwrap();
        assert!(readiness.is_draining());
    }

    #[tokio::test]
    async fn first_task_that_ends_stops_all_and_is_the_error() {
        for (result, reason) in [
            (
                Err::<(), BoxError>("disk on fire".into()),
                "the watcher task failed",
            ),
            (Ok(()), "the watcher task ended unexpectedly"),
        ] {
            let (shutdown, last) = (CancellationToken::new(), CancellationToken::new());
            let mut tasks = Tasks::new();
            spawn_until_cancelled(&mut tasks, "health", &last);
            spawn_until_cancelled(&mut tasks, "admission", &shutdown);
            spawn(&mut tasks, "watcher", std::future::ready(result));
            let error = join(tasks, &Readiness::default(), &shutdown, &last, LONG)
                .await
                .unwrap_err();
            assert_eq!(error.to_string(), reason);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_fails_if_a_task_does_not_end() {
        let (shutdown, last) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = Tasks::new();
        spawn(&mut tasks, "stubborn", std::future::pending::<()>());
        shutdown.cancel();
        let error = join(tasks, &Readiness::default(), &shutdown, &last, LONG)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "tasks did not end in time: 1 remain");
    }
}
