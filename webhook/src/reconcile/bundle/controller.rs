//! The reconcile of a Bundle: unpack and record, once; afterwards only watch whether its source moves.
//! Not here: how it is unpacked (bundle::unpack), how content is pulled (content::reader) or signatures are judged (bundle::verify).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_api::bundle::{BundleContent, BundleStatus};
use bundle_api::names::{self, condition, reason};
use bundle_api::source::BundleSource;
use bundle_cluster::ByName;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::format::Content;
use bundle_core::plan::conditions::State;
use bundle_core::review::{CheckedBundleSpec, Class, Kind, Requester, SealedContent, Source};
use bundle_core::version::fits_named;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use crate::reconcile::ApiFailure;
use crate::reconcile::bundle::unpack::{Unpack, Unpacked};
use crate::reconcile::content::reader;
use crate::reconcile::context::{ClassFound, Context};
use crate::reconcile::deployment::failures::Work;
use crate::reconcile::error::{ReconcileError, RetryPolicy, tell};
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::seal;
use crate::reconcile::status::unreadable;
use crate::reconcile::status::writer;
use crate::sources::{self, ContentSource as _};

/// Reconciles one Bundle.
pub(in crate::reconcile) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ApiFailure> {
    let begun = Instant::now();
    // What woke us may be older than our own last write, and a status made from that would undo it.
    let result = match ctx.get(&ctx.bundles, &object.name_any()).await {
        // On the heap: it holds a whole conversation with a registry.
        Ok(Some(now)) => {
            ctx.unreadable.remove(&now);
            Box::pin(once(&now, &ctx)).await
        }
        Ok(None) => {
            ctx.unpacking.cancel(&object.name_any());
            Ok(Action::await_change())
        }
        Err(error) if unreadable::is_too_large(&error) => {
            let (resource, events) = (&ctx.bundles, &ctx.bundle_events);
            let reported = ctx.unreadable.report(&ctx.own, resource, events, &object);
            Ok(reported.await)
        }
        Err(error) => Err(error.into()),
    };
    ctx.shared
        .metrics
        .reconcile("Bundle", result.is_ok(), begun.elapsed());
    result
}

async fn once(object: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    if object.metadata.deletion_timestamp.is_some() {
        ctx.unpacking.cancel(&object.name_any());
        return leave(object, ctx).await;
    }
    if seal::ensure(ctx, &ctx.bundles, object, Kind::Bundle).await? {
        return Ok(Action::await_change());
    }
    let class_name = object.data["spec"]["provisionerClassName"]
        .as_str()
        .unwrap_or_default();
    let class = match ctx.class(class_name).await? {
        ClassFound::Ours(class) => class,
        ClassFound::Foreign | ClassFound::Gone => return Ok(Action::await_change()),
        ClassFound::Unreadable(why) => {
            tracing::warn!(
                class = class_name,
                why,
                "a class cannot be read; its Bundles wait"
            );
            return Ok(Action::await_change());
        }
    };
    let old: BundleStatus =
        serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let sealed = seal::content(ctx, object);
    let mut reconcile = DeploymentReconcile {
        object,
        ctx,
        class: &class,
        conditions: ConditionSet::new(&old.conditions, generation, condition_set::now()),
        status: BundleStatus {
            observed_generation: Some(generation),
            // Anybody may have written what is not sealed.
            content: sealed
                .as_ref()
                .map(|sealed| content_status(ctx, object, sealed, old.content.as_ref())),
            ..old.clone()
        },
        sealed,
        is_pending: false,
    };
    let (error, wait) = match reconcile.run().await {
        // It wakes us, and what it failed at before still counts.
        Ok(wait) if reconcile.is_pending => (None, wait),
        Ok(wait) => {
            ctx.failures.reset(Work::Unpack, object);
            (None, wait)
        }
        Err(error) => {
            reconcile.fail(&error);
            let wait = ctx.failures.next(Work::Unpack, object, error.retry);
            (Some(error), wait)
        }
    };
    let DeploymentReconcile {
        conditions,
        mut status,
        is_pending,
        ..
    } = reconcile;
    status.conditions = conditions.into_api();
    let written = writer::write(&ctx.own, &ctx.bundles, object, &old, &status).await?;
    if written {
        if let Some(error) = &error {
            ctx.bundle_events
                .warn(object, error.code, &error.message)
                .await;
        } else if !is_pending && old.phase.as_deref() != Some(names::PHASE_UNPACKED) {
            let note = status
                .content
                .as_ref()
                .map(|content| content.digest.as_str());
            ctx.bundle_events
                .note(object, reason::UNPACK_SUCCESSFUL, note.unwrap_or_default())
                .await;
        }
    }
    Ok(wait.map_or_else(Action::await_change, Action::requeue))
}

/// Our part in a Bundle that is being deleted: the copy on disk, then the finalizer of RukPak, if there is one.
async fn leave(object: &DynamicObject, ctx: &Context) -> Result<Action, ApiFailure> {
    if let Some(SealedContent { digest, .. }) = seal::content(ctx, object) {
        let mut needed = false;
        ctx.each(&ctx.bundles, None, |other| {
            needed |= other.metadata.uid != object.metadata.uid
                && seal::content(ctx, &other).is_some_and(|content| content.digest == digest);
        })
        .await?;
        if !needed {
            ctx.store.remove(&digest);
        }
    }
    remove_finalizer(ctx, object, names::FINALIZER_CACHED_BUNDLE).await?;
    Ok(Action::await_change())
}

async fn remove_finalizer(
    ctx: &Context,
    object: &DynamicObject,
    finalizer: &str,
) -> Result<(), kube::Error> {
    if !object.finalizers().iter().any(|name| name == finalizer) {
        return Ok(());
    }
    crate::reconcile::set_finalizers(
        &ctx.own,
        &ctx.bundles,
        object,
        object
            .finalizers()
            .iter()
            .filter(|name| *name != finalizer)
            .cloned()
            .collect(),
    )
    .await
}

struct DeploymentReconcile<'a> {
    object: &'a DynamicObject,
    ctx: &'a Arc<Context>,
    class: &'a Class,
    conditions: ConditionSet,
    status: BundleStatus,
    /// What was unpacked before.
    sealed: Option<SealedContent>,
    /// Whether work for it goes on beside this reconcile.
    is_pending: bool,
}

impl DeploymentReconcile<'_> {
    /// What is said when it could not go on. Content that was unpacked stays unpacked.
    fn fail(&mut self, error: &ReconcileError) {
        let keeps = self.status.content.is_some()
            && !matches!(
                error.code.id,
                id if id == codes::install::CONTENT_CHANGED.id || id == codes::review::NOT_ADMITTED.id
            );
        for kind in [condition::VERIFIED, condition::COMPATIBLE] {
            self.conditions.set_if_new(
                kind,
                State::Unknown,
                reason::UNPACK_PENDING,
                "not looked at yet",
            );
        }
        if keeps {
            return;
        }
        self.status.phase = Some(names::PHASE_FAILING.to_owned());
        self.status.resolved_source = None;
        self.status.content_url = None;
        self.conditions.set(
            condition::UNPACKED,
            State::False,
            error.reason,
            &error.message,
        );
    }

    async fn run(&mut self) -> Result<Option<Duration>, ReconcileError> {
        let (spec, requester) = self.checked()?;
        crate::reconcile::context::is_built(self.class)?;
        sources::is_supported(&spec.source)
            .map_err(|error| reader::registry_error(error, reason::UNPACK_FAILED))?;
        if let Some(recorded) = self.recorded(&spec)? {
            return self.moved(&spec.source, recorded, requester.user).await;
        }
        if let Some(finding) = self.class.takes(&spec.source, "spec.source") {
            return Err(ReconcileError::findings(
                reason::UNPACK_FAILED,
                &finding.into(),
                RetryPolicy::OnChange,
            ));
        }
        let unpack = Unpack {
            ctx: self.ctx.clone(),
            class: self.class.clone(),
            bundle: self.object.clone(),
            source: spec.source.clone(),
            requester,
        };
        let name = self.object.name_any();
        let version = self.version();
        // On the heap: it holds a whole conversation with a registry.
        let unpacking = Box::pin(unpack.run());
        match self.ctx.unpacking.run(&name, &version, unpacking).await {
            None => {
                self.pending();
                Ok(None)
            }
            Some(Err(failed)) => {
                if let Some((state, message)) = &failed.verified {
                    let failed = reason::UNPACK_FAILED;
                    self.conditions
                        .set(condition::VERIFIED, *state, failed, message);
                }
                Err(failed.error)
            }
            Some(Ok(unpacked)) => {
                self.record(&spec, unpacked);
                Ok(self.next_look(&spec.source))
            }
        }
    }

    /// What of the object work is for.
    fn version(&self) -> String {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let generation = self.object.metadata.generation.unwrap_or_default();
        format!("{uid} {generation}")
    }

    /// Says that the content is on its way.
    fn pending(&mut self) {
        self.is_pending = true;
        self.status.phase = Some(names::PHASE_UNPACKING.to_owned());
        self.conditions.set(
            condition::UNPACKED,
            State::False,
            reason::UNPACKING,
            "the content is being fetched, or waits for its turn",
        );
        for kind in [condition::VERIFIED, condition::COMPATIBLE] {
            self.conditions.set_if_new(
                kind,
                State::Unknown,
                reason::UNPACK_PENDING,
                "not looked at yet",
            );
        }
    }

    /// The spec, if it is one that was admitted, and who asked for it.
    fn checked(&self) -> Result<(CheckedBundleSpec, Requester), ReconcileError> {
        let spec = &self.object.data["spec"];
        let vouched = seal::vouched(self.ctx, self.object, Kind::Bundle).map_err(|message| {
            ReconcileError::new(
                codes::review::NOT_ADMITTED,
                reason::NOT_ADMITTED,
                message,
                RetryPolicy::OnChange,
            )
        })?;
        CheckedBundleSpec::parse(spec)
            .map(|spec| (spec, vouched.parts.template))
            .map_err(|findings| {
                ReconcileError::findings(reason::UNPACK_FAILED, &findings, RetryPolicy::OnChange)
            })
    }

    /// What was first unpacked under this name, if anything was.
    fn recorded(&self, spec: &CheckedBundleSpec) -> Result<Option<ContentId>, ReconcileError> {
        match &self.sealed {
            Some(content) if content.spec != spec.digest => Err(ReconcileError::new(
                codes::install::CONTENT_CHANGED,
                reason::UNPACK_FAILED,
                format!(
                    "the spec was changed after the content {} was unpacked; only that content is accepted under this name: delete the Bundle and create it again",
                    content.digest
                ),
                RetryPolicy::OnChange,
            )),
            content => Ok(content
                .as_ref()
                .map(|content| ContentId::new(&spec.source, content.digest.clone()))),
        }
    }

    fn record(&mut self, spec: &CheckedBundleSpec, unpacked: Unpacked) {
        let Unpacked {
            id,
            verified: (found, signers),
            signed_by,
            compatible: (state, fits, range),
            content,
            warnings,
        } = unpacked;
        self.conditions
            .set(condition::VERIFIED, State::True, found, &signers);
        // An unsupported server does not stop the unpacking: a BundleDeployment may accept it.
        self.conditions
            .set(condition::COMPATIBLE, state, fits, &range);
        self.status.phase = Some(names::PHASE_UNPACKED.to_owned());
        self.status.resolved_source = Some(self.resolved_source(&id));
        self.status.signed_by = signed_by;
        let sealed = SealedContent {
            spec: spec.digest.clone(),
            digest: id.digest().clone(),
            version: content.version.clone(),
        };
        self.status.content = Some(content_status(
            self.ctx,
            self.object,
            &sealed,
            Some(&content),
        ));
        let mut message = "Successfully unpacked the bundle".to_owned();
        if !warnings.is_empty() {
            message = format!("{message}; {}", warnings.join("; "));
        }
        self.conditions.set(
            condition::UNPACKED,
            State::True,
            reason::UNPACK_SUCCESSFUL,
            &message,
        );
        self.conditions.set(
            condition::SOURCE_MOVED,
            State::False,
            reason::SOURCE_UNCHANGED,
            &format!("the source names {}", id.digest()),
        );
    }

    /// The source as the spec has it, pinned to what it was resolved to.
    fn resolved_source(&self, id: &ContentId) -> BundleSource {
        let mut source: BundleSource =
            serde_json::from_value(self.object.data["spec"]["source"].clone()).unwrap_or_default();
        if let (Some(image), Some(resolved)) = (&mut source.image, id.image()) {
            image.reference = resolved.pinned().to_string();
        }
        source
    }

    /// Asks what the source of an unpacked Bundle names now. Whatever the answer is, only the condition changes.
    async fn moved(
        &mut self,
        source: &Source,
        recorded: ContentId,
        requester: String,
    ) -> Result<Option<Duration>, ReconcileError> {
        // A status that somebody emptied in part is made whole again.
        self.status.phase = Some(names::PHASE_UNPACKED.to_owned());
        self.status.resolved_source = Some(self.resolved_source(&recorded));
        self.conditions.set_if_new(
            condition::UNPACKED,
            State::True,
            reason::UNPACK_SUCCESSFUL,
            "Successfully unpacked the bundle",
        );
        let digest = recorded.digest().clone();
        let changed = if source.is_fixed() {
            Some(Ok(None))
        } else {
            let (ctx, source) = (self.ctx.clone(), source.clone());
            let asking = async move {
                let failed = reason::UNPACK_FAILED;
                let source = reader::open(&ctx, &source, &requester, failed).await;
                let source = source.map_err(|error| error.message)?;
                let changed = source.changed(&recorded).await;
                changed.map_err(|error| crate::chain(&error))
            };
            let (name, version) = (self.object.name_any(), self.version());
            self.ctx.resolving.run(&name, &version, asking).await
        };
        match changed {
            // We are woken with the answer.
            None => return Ok(None),
            Some(Ok(None)) => self.conditions.set(
                condition::SOURCE_MOVED,
                State::False,
                reason::SOURCE_UNCHANGED,
                &format!("the source names {digest}"),
            ),
            Some(Ok(Some(now))) => self.conditions.set(
                condition::SOURCE_MOVED,
                State::True,
                reason::SOURCE_MOVED,
                &format!(
                    "{} names {} now; {digest} was unpacked and stays what this Bundle is",
                    source.name(),
                    now.digest()
                ),
            ),
            // That a source is out of reach for a while changes nothing that runs.
            Some(Err(error)) => self.conditions.set(
                condition::SOURCE_MOVED,
                State::Unknown,
                "SourceUnseen",
                &error,
            ),
        }
        Ok(self.next_look(source))
    }

    /// When to look again whether the source moved: never where it names a digest.
    fn next_look(&self, source: &Source) -> Option<Duration> {
        let interval = self.ctx.shared.settings.source_check_interval?;
        (!source.is_fixed()).then(|| crate::reconcile::spread(interval))
    }
}

/// What the status shows of sealed content, with the rest of what `described` says of the same digest.
fn content_status(
    ctx: &Context,
    object: &DynamicObject,
    sealed: &SealedContent,
    described: Option<&BundleContent>,
) -> BundleContent {
    let described = described.filter(|content| content.digest == sealed.digest.as_str());
    BundleContent {
        digest: sealed.digest.to_string(),
        spec_digest: sealed.spec.to_string(),
        version: sealed.version.clone(),
        seal: Some(seal::content_text(ctx, object, sealed)),
        ..described.cloned().unwrap_or_default()
    }
}

/// What there is to say about `content` on this server.
pub(in crate::reconcile) fn compatibility(
    ctx: &Context,
    content: &Content,
) -> Result<(State, &'static str, String), ReconcileError> {
    let Some(kubernetes) = content
        .package
        .as_ref()
        .and_then(|package| package.kubernetes.as_ref())
    else {
        let message = "the content states no range of Kubernetes versions".to_owned();
        return Ok((State::True, "NoRange", message));
    };
    let server = ctx
        .shared
        .server_version()
        .ok_or_else(|| unknown_server("the API server has not told its version yet"))?;
    let name = content.package.as_ref().map_or_else(
        || "this bundle".to_owned(),
        |package| format!("bundle {} {}", package.name, package.version),
    );
    Ok(match fits_named(&name, kubernetes, &server) {
        None => (
            State::True,
            "Supported",
            format!("Kubernetes {server} is supported"),
        ),
        Some(finding) if finding.severity == bundle_core::diagnostic::Severity::Warning => {
            (State::True, "UnsupportedWarned", tell(&finding))
        }
        Some(finding) => (State::False, "Unsupported", tell(&finding)),
    })
}

fn unknown_server(message: &str) -> ReconcileError {
    ReconcileError::new(
        codes::review::SERVER_UNKNOWN,
        reason::UNPACK_FAILED,
        message,
        RetryPolicy::Soon,
    )
}

/// A merge patch of the metadata of one of our own objects.
pub(in crate::reconcile) async fn patch_metadata(
    ctx: &Context,
    resource: &kube::core::discovery::ApiResource,
    name: &str,
    metadata: Value,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), resource);
    let patch = json!({ "metadata": metadata });
    ByName(&api)
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}
