//! Content that an external command renders (charts). The rendered objects are read from the
//! rendered copy in the cache. If this copy does not exist, a background task runs the command and
//! creates the copy.
//!
//! The cache key of the copy and the version of the task do not contain the API versions of the
//! server. Otherwise a user who repeatedly creates and deletes a CustomResourceDefinition could
//! cancel each rendering.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Findings, codes};
use bundle_core::format::helm::{self, RenderedApis, ServedApis};
use bundle_core::format::{self, CommandOutput, Content, RenderCommand};
use bundle_core::package::Format;
use bundle_core::plan::bundle::attempts::ParseStep;
use bundle_core::reference::Digest;
use bundle_core::yaml::{self, Allowance};
use bundle_oci::chart::{self, CommandFiles};
use tokio::time::Instant;

use super::parse::{self, content_error};
use super::{
    ContentAttempts, LoadRequest, RenderedCopyChoice, RenderedKeeper, memory, panicked, unstorable,
};
use crate::budget::{Share, WorkerThread, requester_key};
use crate::clients::helm::{HelmError, HelmFolder};
use crate::reconcile::background_tasks::{TaskOwner, TaskState};
use crate::reconcile::content::rendered::{PER_OBJECT, SelectedObjects};
use crate::reconcile::content::stored::StoredContent;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// Maximum time for which one rendering occupies helm: writing the files, the runs of helm, reading
/// their output, and waits. Renderings of other requesters wait for at most this time.
const TURN_LIMIT: Duration = Duration::from_secs(55);
/// If a rendering exceeds [`TURN_LIMIT`] and has waited longer than this time, the chart does not
/// exceed a limit, and the rendering is retried soon.
const MAX_WAITED: Duration = Duration::from_secs(5);

/// The only format that needs an external command.
const FORMAT: Format = Format::HelmV3;

/// Loads the objects of content that `command` renders. Returns them with their memory reservation.
/// `stored` is the cached copy of the files of the content.
pub(super) async fn load(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
    command: RenderCommand,
    stored: StoredContent,
) -> Result<(Content, Share), ReconcileError> {
    let reason = wanted.reason;
    let rendered_for = format::dependencies(FORMAT).key(wanted.target);
    let task_content = format!("{} {rendered_for}", wanted.task_content());
    if let Some(copy) = usable_copy(ctx, wanted, &rendered_for).await?
        && let Some(loaded) = read(ctx, wanted, &rendered_for, copy).await?
    {
        // A failed rendering is reported by the next load that requires a current copy.
        let is_installed = wanted.rendered_copy == RenderedCopyChoice::Installed;
        let is_needed = |rendered: &Result<(), ReconcileError>| is_installed && rendered.is_err();
        ctx.rendering
            .remove_ended(wanted.name, &task_content, is_needed);
        return Ok(loaded);
    }
    let user = &wanted.requester.user;
    let attempt_version = format!("{} {rendered_for}", wanted.version);
    let rendering = Rendering {
        ctx: ctx.clone(),
        requester: user.clone(),
        attempts: ContentAttempts::new(ctx, (&attempt_version, user), wanted.content, reason)?,
        keeper: RenderedKeeper::new(ctx, wanted, None),
        command,
        waits: WaitTime::default(),
        reason,
    };
    let owner = TaskOwner {
        name: wanted.name,
        uid: wanted.uid,
        version: wanted.version,
        content: &task_content,
        requester: user,
    };
    match ctx
        .rendering
        .run(owner, Box::pin(rendering.run(stored)))
        .await
    {
        TaskState::Done(done) => done?,
        TaskState::Pending => return Err(rendered_now(reason)),
        TaskState::Postponed => return Err(postponed(reason)),
    }
    // The new copy is used even if the API versions have changed since the rendering started.
    if let Some(copy) = find_copy(ctx, wanted, &rendered_for).await
        && let Some(loaded) = read(ctx, wanted, &rendered_for, copy).await?
    {
        return Ok(loaded);
    }
    Err(ReconcileError::new(
        codes::install::CONTENT_LOST,
        reason,
        "the chart was rendered, and its objects are missing in the cache; the rendering is retried",
        RetryPolicy::Soon,
    ))
}

/// Returns the error for a chart that helm is rendering now.
pub(in crate::reconcile) fn rendered_now(reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::UNPACKING,
        reason,
        "helm renders the chart; the reconcile continues after the rendering",
        RetryPolicy::Soon,
    )
}

/// Returns the error for a chart whose requester has too many renderings.
pub(in crate::reconcile) fn postponed(reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::UNPACKING,
        reason,
        "helm renders other charts of the same requester; the rendering of this chart is retried",
        RetryPolicy::Soon,
    )
}

/// Returns the rendered copy in the cache, unless the chart must be rendered again because the API
/// versions of the server have changed.
async fn usable_copy(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
    rendered_for: &Digest,
) -> Result<Option<SelectedObjects>, ReconcileError> {
    let copy = find_copy(ctx, wanted, rendered_for).await;
    let apis = copy.as_ref().and_then(SelectedObjects::apis);
    let can_render_again = apis.is_some_and(|apis| apis.can_render_again(SystemTime::now()));
    if wanted.rendered_copy == RenderedCopyChoice::Installed || !can_render_again {
        return Ok(copy);
    }
    let served = served_apis(ctx, wanted.reason).await?;
    Ok(copy.filter(|copy| copy.apis().is_some_and(|apis| apis.is_for(&served))))
}

/// Returns the API versions and kinds that the API server serves.
async fn served_apis(ctx: &Context, reason: &'static str) -> Result<ServedApis, ReconcileError> {
    let served = ctx.apis.served().await;
    let served =
        served.map_err(|error| ReconcileError::api("discover the served APIs", reason, &error))?;
    Ok(ServedApis::new(served.list, served.unlisted_groups))
}

/// Finds all objects in the rendered copy. Returns `None` if the cache contains no rendered copy.
async fn find_copy(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
    rendered_for: &Digest,
) -> Option<SelectedObjects> {
    let find = {
        let (ctx, content) = (ctx.clone(), wanted.content.clone());
        let rendered_for = rendered_for.clone();
        move |_: &Cancellation| {
            let key = ctx.shared.stamp_key();
            ctx.store.select_all(&content, &rendered_for, key.bytes())
        }
    };
    let budget = &ctx.shared.budget;
    let found = budget
        .blocking(
            WorkerThread::Objects,
            requester_key(&wanted.requester.user),
            find,
        )
        .await;
    found.flatten()
}

/// Reads all objects from the rendered copy `selected`. Returns `None` if the copy is damaged.
async fn read(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
    rendered_for: &Digest,
    selected: SelectedObjects,
) -> Result<Option<(Content, Share)>, ReconcileError> {
    let budget = &ctx.shared.budget;
    let objects = selected.weight().saturating_mul(wanted.copies);
    let weight = wanted.with_pruning(ctx, objects);
    let share = memory(ctx, &wanted.requester.user, weight, wanted.reason).await?;
    let work = move |_: &Cancellation| (selected.read(), share);
    let key = requester_key(&wanted.requester.user);
    match budget.blocking(WorkerThread::Content, key, work).await {
        Some((Ok((content, _)), share)) => Ok(Some((content, share))),
        Some((Err(error), _)) => {
            let digest = wanted.content.digest();
            tracing::warn!(%digest, %error, "ignored a damaged rendered copy in the cache");
            ctx.store.remove_rendered(wanted.content, rendered_for);
            Ok(None)
        }
        None => Err(panicked(wanted.reason)),
    }
}

/// A rendering that has not started.
struct Rendering {
    ctx: Arc<Context>,
    requester: String,
    attempts: ContentAttempts,
    keeper: RenderedKeeper,
    command: RenderCommand,
    waits: WaitTime,
    reason: &'static str,
}

/// Total time for which a rendering has waited for the API server, for the thread for content and
/// for memory.
#[derive(Debug, Clone, Default)]
struct WaitTime(Arc<Mutex<Duration>>);

/// A wait of a rendering. On drop, the wait ends, and its time is added to the total time.
struct RenderingWait {
    start: Instant,
    total: WaitTime,
}

impl WaitTime {
    /// Begins a wait.
    fn begin(&self) -> RenderingWait {
        RenderingWait {
            start: Instant::now(),
            total: self.clone(),
        }
    }

    /// Returns the total time of all waits that have ended.
    fn total(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RenderingWait {
    fn drop(&mut self) {
        let total = &self.total.0;
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        *total = total.saturating_add(self.start.elapsed());
    }
}

impl Rendering {
    /// Renders the content, and stores the rendered objects in the cache.
    async fn run(mut self, stored: StoredContent) -> Result<(), ReconcileError> {
        let reason = self.reason;
        let program = self.ctx.shared.helm();
        let folder = program.begin(&self.requester).await;
        let folder = folder.map_err(|error| helm_error(error, reason))?;
        let waits = self.waits.clone();
        let turn = tokio::time::timeout(TURN_LIMIT, self.render(stored, folder));
        let rendered = turn.await;
        let rendered = rendered.unwrap_or_else(|_| Err(turn_exceeded(waits.total(), reason)));
        let (stored, output, share) = rendered?;
        self.keep(stored, output, share).await
    }

    /// Renders the content. Returns `stored`, the output of helm and the memory for its objects. If
    /// the future is dropped, `folder` keeps its slot until the work that uses it has ended.
    async fn render(
        &mut self,
        stored: StoredContent,
        folder: HelmFolder,
    ) -> Result<(StoredContent, Vec<u8>, Share), ReconcileError> {
        let reason = self.reason;
        // The API versions are read after the wait for helm.
        let wait = self.waits.begin();
        let served = served_apis(&self.ctx, reason).await?;
        drop(wait);
        let (files, stored, folder, served) = self.write(stored, folder, served).await?;
        if let Some(group) = served.unlisted_named_group() {
            return Err(ReconcileError::new(
                codes::cluster::UNREACHABLE,
                reason,
                format!("cannot list the kinds of the API group {group}, which the chart names"),
                RetryPolicy::Soon,
            ));
        }
        helm::pass_apis(&mut self.command, &served.selected());
        self.keeper.apis = Some(RenderedApis::new(&served, SystemTime::now()));
        let outputs = folder.render(&self.command, &files).await;
        let outputs = outputs.map_err(|error| helm_error(error, reason))?;
        let (output, weight, slot) = self.weigh(outputs, folder).await?;
        let weight = weight.saturating_add(stored.summary().weight);
        let wait = self.waits.begin();
        let share = self.attempts.memory(&self.ctx, weight).await?;
        drop(wait);
        // The memory that the pod keeps free for helm contains the output. From now on, `share`
        // contains it.
        drop(slot);
        Ok((stored, output, share))
    }

    /// Writes the files of the chart into the folder for helm. Finds the groups of `served` that
    /// these files name. Also returns `stored`, `folder` and `served`.
    async fn write(
        &self,
        mut stored: StoredContent,
        folder: HelmFolder,
        mut served: ServedApis,
    ) -> Result<(CommandFiles, StoredContent, HelmFolder, ServedApis), ReconcileError> {
        let reason = self.reason;
        let command = self.command.clone();
        let attempt = self.attempts.attempt(&self.ctx, ParseStep::Weigh);
        let wait = self.waits.begin();
        let work = move |cancellation: &Cancellation| {
            drop(wait);
            let locations: HashMap<String, _> = stored
                .files()
                .iter()
                .map(|file| (file.path.clone(), file.location))
                .collect();
            let mut paths: Vec<String> = locations.keys().cloned().collect();
            paths.sort();
            let read = |path: &str| match locations.get(path) {
                Some(location) => stored.read(location),
                None => Err(std::io::ErrorKind::NotFound.into()),
            };
            let write = || {
                let path = folder.path();
                chart::write_until(&command, path, &paths, cancellation, &mut served, read)
            };
            (attempt.run(write), stored, folder, served)
        };
        let budget = &self.ctx.shared.budget;
        let done = budget
            .blocking(WorkerThread::Content, self.attempts.key(), work)
            .await;
        let (written, stored, folder, served) = done.ok_or_else(|| panicked(reason))?;
        let files = written?.map_err(|error| unstorable(&error, reason))?;
        let files = files.map_err(|findings| content_error(&findings, reason))?;
        Ok((files, stored, folder, served))
    }

    /// Compares the outputs of two runs, and computes the memory that the objects in the output
    /// need. Returns the output, this memory in bytes, and the slot of the rendering.
    async fn weigh(
        &self,
        (output, again): (Vec<u8>, Option<Vec<u8>>),
        folder: HelmFolder,
    ) -> Result<(Vec<u8>, u64, Arc<Share>), ReconcileError> {
        let reason = self.reason;
        let command = self.command.clone();
        let attempt = self.attempts.attempt(&self.ctx, ParseStep::Weigh);
        let wait = self.waits.begin();
        let work = move |cancellation: &Cancellation| {
            drop(wait);
            let weigh = || {
                if let Some(again) = again {
                    let mut allowance = Allowance::new(cancellation);
                    helm::compare(&command, &output, &again, &mut allowance)?;
                }
                let mut allowance = Allowance::new(cancellation);
                yaml::weigh(&output, "helm template", &mut allowance)
            };
            (attempt.run(weigh), output, folder)
        };
        let budget = &self.ctx.shared.budget;
        let done = budget
            .blocking(WorkerThread::Content, self.attempts.key(), work)
            .await;
        let (weighed, output, folder) = done.ok_or_else(|| panicked(reason))?;
        let weight = weighed?.map_err(|finding| content_error(&Findings::from(finding), reason))?;
        let objects = weight.objects.saturating_mul(PER_OBJECT);
        let memory = (output.len() as u64)
            .saturating_add(weight.tree.0)
            .saturating_add(objects);
        Ok((output, memory, folder.into_slot()))
    }

    /// Parses the output of helm, and stores the rendered objects in the cache.
    async fn keep(
        self,
        mut stored: StoredContent,
        output: Vec<u8>,
        share: Share,
    ) -> Result<(), ReconcileError> {
        let reason = self.reason;
        let attempt = self.attempts.attempt(&self.ctx, ParseStep::Parse);
        let keeper = self.keeper;
        let work = move |cancellation: &Cancellation| {
            let files = stored.files().iter();
            let files: Vec<_> = files
                .map(|file| (file.path.clone(), file.location))
                .collect();
            let parse = || {
                let files = parse::read_files(files, |location| stored.read(location))?;
                let output = CommandOutput::Text(&output);
                Ok(match keeper.render(&files, output, cancellation) {
                    Ok(content) => Ok(keeper.keep(&content)),
                    Err(findings) => Err(findings),
                })
            };
            (attempt.run(parse), share)
        };
        let budget = &self.ctx.shared.budget;
        let done = budget
            .blocking(WorkerThread::Content, self.attempts.key(), work)
            .await;
        let (read, _share) = done.ok_or_else(|| panicked(reason))?;
        let kept = parse::read_error(read?, reason)?;
        kept.map_err(|error| unstorable(&error, reason))
    }
}

/// Returns the error of a rendering that exceeds [`TURN_LIMIT`], after it has waited for `waited`.
fn turn_exceeded(waited: Duration, reason: &'static str) -> ReconcileError {
    let limit = TURN_LIMIT.as_secs();
    if waited <= MAX_WAITED {
        return helm_error(HelmError::Limit(format!("{limit} s")), reason);
    }
    let waited = waited.as_secs();
    ReconcileError::new(
        codes::install::UNPACKING,
        reason,
        format!(
            "the rendering of the chart did not end within {limit} s, because it waited {waited} s for other tasks of the pod or for the API server; the rendering is retried"
        ),
        RetryPolicy::Soon,
    )
}

/// Converts a failure of helm to the error of a reconcile.
pub(in crate::reconcile) fn helm_error(error: HelmError, reason: &'static str) -> ReconcileError {
    let retry = match &error {
        HelmError::Chart(findings) => return content_error(findings, reason),
        HelmError::Missing(_) | HelmError::MemoryTooSmall(_) => RetryPolicy::OnChange,
        HelmError::Io(_) | HelmError::Limit(_) => RetryPolicy::Slowly,
    };
    ReconcileError::findings(reason, &error.findings(), retry)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;

    use super::*;
    use crate::budget::Budget;

    #[tokio::test]
    async fn wait_for_the_thread_is_measured_also_if_the_rendering_is_dropped() {
        let budget = Budget::default();
        let (end, ended) = mpsc::channel::<()>();
        let mut other = Box::pin(budget.blocking(
            WorkerThread::Content,
            "other".to_owned(),
            move |_: &Cancellation| ended.recv(),
        ));
        assert!(other.as_mut().now_or_never().is_none());
        let waits = WaitTime::default();
        let wait = waits.begin();
        let work = move |_: &Cancellation| drop(wait);
        let waiting = budget.blocking(WorkerThread::Content, "own".to_owned(), work);
        let time = Duration::from_millis(50);
        assert!(tokio::time::timeout(time, waiting).await.is_err());
        assert!(waits.total() >= time);
        end.send(()).unwrap();
        assert_eq!(other.await, Some(Ok(())));
    }

    #[test]
    fn rendering_that_waited_is_retried_soon_and_exceeds_no_limit_of_its_chart() {
        for (waited, code, retry) in [
            (MAX_WAITED, codes::install::HELM_LIMIT, RetryPolicy::Slowly),
            (MAX_WAITED * 2, codes::install::UNPACKING, RetryPolicy::Soon),
        ] {
            let error = turn_exceeded(waited, "InstallFailed");
            assert_eq!((error.code, error.retry), (code, retry));
        }
    }
}
