//! Loads content from the cached copy or from its source. The digest of the content is checked in
//! both cases. Memory is reserved before content is parsed. Until the needed memory is known, only
//! one file of the content is in memory at a time.

pub(super) mod attempt;
pub(super) mod chart;
pub(super) mod errors;
mod fetch;
pub(super) mod parse;
mod reservation;

use std::io;
use std::sync::Arc;

use bundle_core::cancellation::Cancellation;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::{Findings, codes};
use bundle_core::format::helm::RenderedApis;
use bundle_core::format::{
    self, CommandOutput, Content, Files, RenderCommand, RenderInput, RenderTarget,
};
use bundle_core::plan::bundle::attempts::ParseStep;
use bundle_core::reference::Digest;
use bundle_core::review::{Requester, Source};
use bundle_core::yaml::Allowance;

use crate::budget::lookups::LookupMemory;
use crate::budget::{Share, TransferSlot, WorkerThread, requester_key};
use crate::reconcile::background_tasks::{TaskOwner, TaskState};
use crate::reconcile::content::sealed_file::ValidSeal;
use crate::reconcile::content::stored::StoredContent;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::rights;
use crate::sources::{self, OpenSource, SourceOwner};

pub(in crate::reconcile) use attempt::ContentAttempts;
pub(in crate::reconcile) use errors::{fetched_again, source_error, unstorable};
pub(in crate::reconcile) use fetch::fetch;
pub(in crate::reconcile) use reservation::{memory, wait_for_memory};

use errors::panicked;
use reservation::{MEMORY_WAIT_LIMIT, all_memory};

/// Opens a source of a Bundle for `owner`, and reads the credentials that the source names. Fails
/// if the requester has no permission to read these credentials. The permission is checked each
/// time, because the credentials are sent to the host of the source.
///
/// Manifests and other small responses of a registry are in the memory for content, and count
/// towards the limit of the requester. This memory is released when the source is dropped. A caller
/// with memory for content must not open a source, and must drop the source before it waits for
/// such memory. Otherwise two callers could wait for each other.
pub(in crate::reconcile) async fn open(
    ctx: &Context,
    source: &Source,
    owner: SourceOwner<'_>,
    reason: &'static str,
) -> Result<OpenSource, ReconcileError> {
    let requester = owner.requester;
    let may_read = rights::source::check(ctx, requester, source).await;
    may_read.map_err(|error| ReconcileError { reason, ..error })?;
    let memory = LookupMemory::of_reconcile(&ctx.shared.budget, &requester.user, MEMORY_WAIT_LIMIT);
    let uses_memory = match source {
        Source::Image { .. } | Source::Http { .. } => true,
        Source::Git { .. } | Source::ConfigMaps(_) | Source::Upload => false,
    };
    if uses_memory && !memory.begin().await {
        return Err(ReconcileError::new(
            codes::install::MEMORY_BUSY,
            reason,
            "the source waits for memory that content and other sources use; the reconcile is retried",
            RetryPolicy::Soon,
        ));
    }
    let opened = sources::open(&ctx.shared, source, owner, Arc::new(memory)).await;
    opened.map_err(|error| source_error(error, owner.named(source), reason))
}

/// Opens a source of a Bundle with [`open`], and waits for a transfer slot. During the wait, no
/// memory is reserved and no unfinished file exists. For a git source, the working folder of git
/// already exists during the wait.
pub(in crate::reconcile) async fn open_for_transfer(
    ctx: &Context,
    source: &Source,
    owner: SourceOwner<'_>,
    reason: &'static str,
) -> Result<(OpenSource, TransferSlot), ReconcileError> {
    let requester = &owner.requester.user;
    let needs_folder = match source {
        Source::Git { .. } => true,
        Source::Image { .. } | Source::ConfigMaps(_) | Source::Http { .. } | Source::Upload => {
            false
        }
    };
    if needs_folder {
        let opened = open(ctx, source, owner, reason).await?;
        let prepared = opened.prepare().await;
        prepared.map_err(|error| source_error(error, opened.named(), reason))?;
        let slot = transfer_slot(ctx, requester, source, reason).await?;
        return Ok((opened, slot));
    }
    // The source is opened after the wait, so that no memory and no credentials are held during the
    // wait.
    let slot = transfer_slot(ctx, requester, source, reason).await?;
    let opened = open(ctx, source, owner, reason).await?;
    Ok((opened, slot))
}

/// A request to load content.
pub(in crate::reconcile) struct LoadRequest<'a> {
    /// Name of the BundleDeployment.
    pub(in crate::reconcile) name: &'a str,
    /// Uid of the BundleDeployment.
    pub(in crate::reconcile) uid: &'a str,
    /// Uid and generation of the BundleDeployment.
    pub(in crate::reconcile) version: &'a str,
    /// The requester of the content. The requester must have permission to read the source. The
    /// limits of the requester for memory, transfers and disk space apply.
    pub(in crate::reconcile) requester: &'a Requester,
    /// The class name of the Bundle.
    pub(in crate::reconcile) class: &'a str,
    pub(in crate::reconcile) content: &'a ContentId,
    /// The target (cluster and settings) that the content is rendered for.
    pub(in crate::reconcile) target: &'a RenderTarget,
    pub(in crate::reconcile) rendered_copy: RenderedCopyChoice,
    /// Number of copies of each object that are in memory at the same time.
    pub(in crate::reconcile) copies: u64,
    /// Memory that the recorded objects need during the prune after an installation, in bytes. A
    /// prune removes recorded objects that the content does not contain.
    pub(in crate::reconcile) pruning: u64,
    pub(in crate::reconcile) reason: &'static str,
}

/// The rendered copy of a chart that is used if the API server serves other API versions than at
/// the time of the rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) enum RenderedCopyChoice {
    /// The existing copy. Used for installed content, so that an unrelated API version neither
    /// delays nor changes the objects.
    Installed,
    /// The existing copy if it is recent or was rendered for the served API versions; otherwise a
    /// new copy. Used for a new installation.
    Current,
}

impl LoadRequest<'_> {
    /// Returns the key of the content in background tasks.
    fn task_content(&self) -> String {
        format!("{} {}", self.content.digest(), self.content.scope())
    }

    /// Returns the memory for objects (`objects` bytes) and for pruning together, in bytes. The
    /// memory for pruning is limited, so that content that fits without pruning is not rejected as
    /// too large.
    fn with_pruning(&self, ctx: &Context, objects: u64) -> u64 {
        let half = ctx.shared.budget.content.capacity() / 2;
        objects.max(objects.saturating_add(self.pruning).min(half))
    }
}

/// Loads the content of a BundleDeployment. The returned share is the memory reservation for the
/// objects, and must exist as long as the objects. A caller with a share must not load more
/// content, because two such callers could wait for each other.
pub(in crate::reconcile) async fn load(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
) -> Result<(Content, Share), ReconcileError> {
    let reason = wanted.reason;
    let existing = rendered_copy(ctx, wanted).await;
    let attempts = if existing.is_some() {
        // The rendered copy proves that this version of the program has already parsed the content.
        ContentAttempts::without_records(&wanted.requester.user, reason)
    } else {
        let owner = (wanted.version, wanted.requester.user.as_str());
        ContentAttempts::new(ctx, owner, wanted.content, reason)?
    };
    let stored = stored(ctx, wanted, &attempts).await?;
    let objects = stored.summary().weight.saturating_mul(wanted.copies);
    let weight = wanted.with_pruning(ctx, objects);
    let share = attempts.memory(ctx, weight).await?;
    let mut stored = stored;
    let keeper = RenderedKeeper::new(ctx, wanted, existing);
    let attempt = attempts.attempt(ctx, ParseStep::Parse);
    let work = move |cancellation: &Cancellation| {
        let files = stored.files().iter();
        let files: Vec<_> = files
            .map(|file| (file.path.clone(), file.location))
            .collect();
        let parse = || {
            let files = parse::read_files(files, |location| stored.read(location))?;
            Ok(keeper.parse(&files, cancellation))
        };
        (attempt.run(parse), stored, share)
    };
    let budget = &ctx.shared.budget;
    let done = budget
        .blocking(
            WorkerThread::Content,
            requester_key(&wanted.requester.user),
            work,
        )
        .await;
    let (read, stored, mut share) = done.ok_or_else(|| panicked(reason))?;
    let read: io::Result<Result<Parsed, Findings>> = read?;
    // The copy is removed only after a read error, which means that the copy is damaged. Findings
    // can be caused by the configuration of this BundleDeployment, and other BundleDeployments can
    // use the copy.
    if read.is_err() {
        // Without a copy, the next reconcile fetches the content again.
        ctx.store.remove(wanted.content.digest());
    }
    match parse::read_error(read, reason)? {
        Parsed::Content(content) => {
            let content = *content;
            // If the attempt reserved the whole memory, the memory that the objects do not need is
            // released.
            share.reduce(weight);
            Ok((content, share))
        }
        Parsed::Command(command) => {
            // The share is dropped first, because `chart::load` waits for another share.
            drop(share);
            Box::pin(chart::load(ctx, wanted, *command, stored)).await
        }
    }
}

/// The result of parsing the files of content.
enum Parsed {
    Content(Box<Content>),
    /// The external command that renders the content.
    Command(Box<RenderCommand>),
}

/// The cache key and the seal of a rendered copy in the cache.
struct RenderedCopy {
    rendered_for: Digest,
    seal: ValidSeal,
}

/// Returns the rendered copy of the content for this target. Returns `None` if the cache contains
/// no such copy.
async fn rendered_copy(ctx: &Arc<Context>, wanted: &LoadRequest<'_>) -> Option<RenderedCopy> {
    let find = {
        let (ctx, content) = (ctx.clone(), wanted.content.clone());
        // The format of the content is not known yet, so the cache keys for all formats are tried.
        let keys = format::cache_keys(wanted.target);
        move |_: &Cancellation| {
            let key = ctx.shared.stamp_key();
            keys.into_iter().find_map(|rendered_for| {
                let seal = ctx
                    .store
                    .rendered_seal(&content, &rendered_for, key.bytes())?;
                Some(RenderedCopy { rendered_for, seal })
            })
        }
    };
    let budget = &ctx.shared.budget;
    let key = requester_key(&wanted.requester.user);
    budget
        .blocking(WorkerThread::Objects, key, find)
        .await
        .flatten()
}

/// Renders content, and stores the rendered objects in the cache, so that single objects can be
/// read later.
struct RenderedKeeper {
    ctx: Arc<Context>,
    content: ContentId,
    target: RenderTarget,
    owner: String,
    existing: Option<RenderedCopy>,
    /// The API versions for which the external command renders the content.
    apis: Option<RenderedApis>,
}

impl RenderedKeeper {
    fn new(ctx: &Arc<Context>, wanted: &LoadRequest<'_>, existing: Option<RenderedCopy>) -> Self {
        Self {
            ctx: ctx.clone(),
            content: wanted.content.clone(),
            target: wanted.target.clone(),
            owner: wanted.requester.user.clone(),
            existing,
            apis: None,
        }
    }

    /// Renders the content of these files, and stores the objects in the cache. If an external
    /// command renders the content, only returns this command.
    fn parse(&self, files: &Files, cancellation: &Cancellation) -> Result<Parsed, Findings> {
        let mut allowance = Allowance::new(cancellation);
        if let Some(command) = format::command(files, &self.target, &mut allowance)? {
            return Ok(Parsed::Command(Box::new(command)));
        }
        let content = self.render(files, CommandOutput::Missing, cancellation)?;
        self.keep(&content).unwrap_or_else(|error| {
            // The error is only logged. Without a rendered copy, each restore of an object loads
            // the whole content.
            let digest = self.content.digest();
            tracing::debug!(%digest, %error, "cannot store rendered objects in the cache");
        });
        Ok(Parsed::Content(Box::new(content)))
    }

    fn render(
        &self,
        files: &Files,
        output: CommandOutput<'_>,
        cancellation: &Cancellation,
    ) -> Result<Content, Findings> {
        let input = RenderInput {
            files,
            target: &self.target,
            output,
        };
        format::render_objects(&input, |found, _| Ok(found), cancellation)
    }

    fn keep(&self, content: &Content) -> io::Result<()> {
        let key = self.ctx.shared.stamp_key();
        let rendered_for = format::dependencies(content.format).key(&self.target);
        let existing = self.existing.as_ref();
        let existing = existing.filter(|copy| copy.rendered_for == rendered_for);
        self.ctx.store.store_rendered(
            (content, self.apis.as_ref()),
            (&self.content, &rendered_for),
            existing.map(|copy| &copy.seal),
            key.bytes(),
            &self.owner,
        )
    }
}

/// Returns the cached copy of the content. If the cache contains no copy, a background task fetches
/// the content again.
async fn stored(
    ctx: &Arc<Context>,
    wanted: &LoadRequest<'_>,
    attempts: &ContentAttempts,
) -> Result<StoredContent, ReconcileError> {
    let reason = wanted.reason;
    let copy = || {
        let key = ctx.shared.stamp_key();
        ctx.store.open(wanted.content, key.bytes())
    };
    let task_content = wanted.task_content();
    if let Some(stored) = copy() {
        // The content is present, even if the last fetch failed.
        ctx.refetching
            .remove_ended(wanted.name, &task_content, |_| false);
        return Ok(stored);
    }
    let work = {
        let (ctx, content) = (ctx.clone(), wanted.content.clone());
        let (requester, attempts) = (wanted.requester.clone(), attempts.clone());
        let class = wanted.class.to_owned();
        async move {
            let owner = SourceOwner {
                class: class.as_str(),
                requester: &requester,
                uid: None,
            };
            let (source, slot) = open_for_transfer(&ctx, content.source(), owner, reason).await?;
            let fetched = fetch(&ctx, source, &content, slot, &attempts).await?;
            fetched.keep(&ctx, &content, &requester.user, reason)
        }
    };
    let owner = TaskOwner {
        name: wanted.name,
        uid: wanted.uid,
        version: wanted.version,
        content: &task_content,
        requester: &wanted.requester.user,
    };
    match ctx.refetching.run(owner, work).await {
        TaskState::Done(fetched) => fetched?,
        TaskState::Pending | TaskState::Postponed => {
            return Err(fetched_again(reason));
        }
    }
    copy().ok_or_else(|| {
        ReconcileError::new(
            codes::install::CONTENT_LOST,
            reason,
            "the content was fetched, and its copy is missing in the cache; the fetch is retried",
            RetryPolicy::Soon,
        )
    })
}

/// Waits for a transfer slot for the host of the source. For sources without a host, the source
/// type counts as the host.
async fn transfer_slot(
    ctx: &Context,
    requester: &str,
    source: &Source,
    reason: &'static str,
) -> Result<TransferSlot, ReconcileError> {
    let transfers = &ctx.shared.budget.transfers;
    let registry = source.host().unwrap_or(source.kind());
    transfers.take(requester, registry).await.map_err(|error| {
        ReconcileError::new(
            codes::install::MEMORY_BUSY,
            reason,
            format!("no slot for the transfer is available: {error}; the reconcile is retried"),
            RetryPolicy::Slowly,
        )
    })
}
