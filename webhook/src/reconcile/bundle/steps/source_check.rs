//! The source check of a Bundle: a background task compares the content that the source refers to
//! now with the recorded content.

use std::sync::Arc;

use bundle_api::names::reason;
use bundle_core::content::ContentId;
use bundle_core::names::KubeName;
use bundle_core::plan::bundle::SourceComparison;
use bundle_core::reference::Digest;
use bundle_core::review::{Requester, Source};
use kube::ResourceExt as _;

use super::{BundleReconcile, spec_version, task_version};
use crate::reconcile::background_tasks::{TaskOwner, TaskState};
use crate::reconcile::context::Context;
use crate::reconcile::context::unchanged_sources::SourceKey;
use crate::reconcile::reader;
use crate::sources::{ContentSource as _, SourceOwner};

/// The result of the source check. The check compares the content that the source refers to now
/// with the recorded content.
pub(super) enum SourceCheck {
    /// The check is running. The end of the check starts a reconcile.
    Pending,
    /// The check has not started, because the requester has too many running tasks.
    Postponed,
    Unchanged,
    Changed {
        source: String,
        now: Digest,
    },
    Unknown(String),
}

impl SourceCheck {
    pub(super) fn fact(&self) -> SourceComparison<'_> {
        match self {
            Self::Pending | Self::Postponed => SourceComparison::Pending,
            Self::Unchanged => SourceComparison::Unchanged,
            Self::Changed { source, now } => SourceComparison::Changed { source, now },
            Self::Unknown(why) => SourceComparison::Unknown(why),
        }
    }
}

impl BundleReconcile<'_> {
    /// Returns the key of `content` in the cache of unchanged sources. Returns `None` before the
    /// step `CheckAdmission`, and for a fixed source, which is never compared.
    pub(super) fn source_key(&self, content: &Digest) -> Option<SourceKey> {
        let (spec, requester) = self.checked.as_ref()?;
        if spec.source.is_fixed() {
            return None;
        }
        let version = spec_version(self.uid(), spec);
        Some(SourceKey::of(&version, requester, content))
    }

    /// Compares, in a background task, the content that the source refers to now with the recorded
    /// content. The source is not read if it was unchanged at a recent comparison.
    pub(super) async fn check_source_content(&self) -> SourceCheck {
        let checked = self.checked.clone().zip(self.sealed.as_ref());
        let Some(((spec, requester), sealed)) = checked else {
            return SourceCheck::Pending;
        };
        let key = self.source_key(&sealed.digest);
        if key.is_some_and(|key| self.ctx.unchanged_sources.contains(key)) {
            return SourceCheck::Unchanged;
        }
        let owner_version = task_version(&spec_version(self.uid(), &spec), &requester);
        let source = spec.source;
        let recorded = ContentId::sealed(&source, sealed);
        let user = requester.user.clone();
        let checking = Box::pin(changed_content(
            self.ctx.clone(),
            spec.class,
            source.clone(),
            requester,
            recorded,
        ));
        let name = self.object.name_any();
        let owner = TaskOwner {
            name: &name,
            uid: self.uid(),
            version: &owner_version,
            content: "",
            requester: &user,
        };
        match self.ctx.resolving.run(owner, checking).await {
            TaskState::Pending => SourceCheck::Pending,
            TaskState::Postponed => SourceCheck::Postponed,
            TaskState::Done(Ok(None)) => {
                if let Some(key) = key {
                    self.ctx.unchanged_sources.insert(key).await;
                }
                SourceCheck::Unchanged
            }
            TaskState::Done(Ok(Some(now))) => SourceCheck::Changed {
                source: source.name(),
                now: now.digest().clone(),
            },
            TaskState::Done(Err(why)) => SourceCheck::Unknown(why),
        }
    }
}

/// Returns the content that `source` refers to now. Returns `None` if this content equals
/// `recorded`. `class` is the class of the Bundle. The error is the reason why the content is
/// unknown.
async fn changed_content(
    ctx: Arc<Context>,
    class: KubeName,
    source: Source,
    requester: Requester,
    recorded: ContentId,
) -> Result<Option<ContentId>, String> {
    let owner = SourceOwner {
        class: class.as_str(),
        requester: &requester,
        uid: None,
    };
    let opened = match source {
        // The digest of an archive is known only after the whole archive was transferred. Therefore
        // a transfer slot is needed.
        Source::Http { .. } => {
            let opened = reader::open_for_transfer(&ctx, &source, owner, reason::UNPACK_FAILED);
            opened.await.map(|(opened, slot)| (opened, Some(slot)))
        }
        Source::Image { .. } | Source::ConfigMaps(_) | Source::Git { .. } | Source::Upload => {
            let opened = reader::open(&ctx, &source, owner, reason::UNPACK_FAILED);
            opened.await.map(|opened| (opened, None))
        }
    };
    let (opened, _slot) = opened.map_err(|error| error.message)?;
    let changed = opened.changed(&recorded).await;
    changed.map_err(|error| crate::chain(&error))
}
