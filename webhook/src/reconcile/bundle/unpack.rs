//! The first unpacking of a Bundle: resolve, verify, fetch, check and store. The unpacking runs as
//! a background task. It uses a transfer slot until the content is stored, and reserves memory
//! while it parses the content.

use std::sync::Arc;

use bundle_api::bundle::BundleContent;
use bundle_api::names::reason;
use bundle_core::content::ContentId;
use bundle_core::format::{self, Content};
use bundle_core::plan::conditions::ConditionStatus;
use bundle_core::review::{Class, Requester, Source};
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::reconcile::bundle::compatibility::compatibility;
use crate::reconcile::bundle::verify::{self, BundleToVerify};
use crate::reconcile::content::unpacked::{UnpackError, Unpacked};
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, finding_text};
use crate::reconcile::reader::{self, ContentAttempts};
use crate::sources::{ContentSource as _, SourceOwner};

const FAILED: &str = reason::UNPACK_FAILED;

/// The input of an unpacking that has not started.
pub(in crate::reconcile) struct Unpack {
    pub(in crate::reconcile) ctx: Arc<Context>,
    pub(in crate::reconcile) class: Class,
    pub(in crate::reconcile) bundle: UnpackedBundle,
    /// Uid of the Bundle, and digest of its normalized spec.
    pub(in crate::reconcile) version: String,
    pub(in crate::reconcile) source: Source,
    pub(in crate::reconcile) requester: Requester,
}

/// Identity of the Bundle to unpack. The whole object is not kept in memory, because many tasks can
/// wait for a registry at the same time.
pub(in crate::reconcile) struct UnpackedBundle {
    name: String,
    uid: Option<String>,
    has_proof: bool,
}

impl From<&DynamicObject> for UnpackedBundle {
    fn from(bundle: &DynamicObject) -> Self {
        Self {
            name: bundle.name_any(),
            uid: bundle.metadata.uid.clone(),
            has_proof: verify::proof(bundle).is_some(),
        }
    }
}

impl UnpackedBundle {
    /// Reads the proof annotation from the API server, if the Bundle has this annotation.
    async fn proof(&self, ctx: &Context) -> Result<Option<String>, ReconcileError> {
        if !self.has_proof {
            return Ok(None);
        }
        let _read = ctx.bundle_slots.acquire_read().await;
        let bundle = ctx.get(&ctx.bundles, &self.name).await;
        let bundle =
            bundle.map_err(|error| ReconcileError::api("read the Bundle", FAILED, &error))?;
        Ok(bundle
            .filter(|bundle| bundle.metadata.uid == self.uid)
            .and_then(|bundle| verify::proof(&bundle).map(str::to_owned)))
    }
}

impl Unpack {
    /// Unpacks the content of the source into the cache. Content that fails a check is not stored.
    pub(in crate::reconcile) async fn run(self) -> Result<Unpacked, UnpackError> {
        let ctx = &*self.ctx;
        let user = &self.requester.user;
        let owner = SourceOwner {
            class: self.class.name.as_str(),
            requester: &self.requester,
            uid: self.bundle.uid.as_deref(),
        };
        let (source, slot) = reader::open_for_transfer(ctx, &self.source, owner, FAILED).await?;
        let resolved = source.resolve().await;
        let resolved =
            resolved.map_err(|error| reader::source_error(error, source.named(), FAILED))?;
        let proof = self.bundle.proof(ctx).await?;
        let bundle = BundleToVerify {
            name: &self.bundle.name,
            uid: self.bundle.uid.as_deref(),
            proof: proof.as_deref(),
        };
        let verified = verify::verify(ctx, &self.class, &source, &bundle, resolved);
        let verified = Box::pin(verified).await.map_err(|error| {
            let state = if error.is_unknown() {
                ConditionStatus::Unknown
            } else {
                ConditionStatus::False
            };
            UnpackError {
                verified: Some((state, error.message.clone())),
                error,
            }
        })?;
        let decided = verified.decided;
        let id = decided.content.get().clone();
        let attempts = ContentAttempts::new(ctx, (&self.version, user), &id, FAILED)?;
        // The transfer ends and the data of the registry is released before this task waits for
        // memory, so that other transfers can begin. `fetched` keeps the slot until the content is
        // stored.
        let fetched = reader::fetch(ctx, source, &id, slot, &attempts).await?;
        let summary = fetched.summary;
        let parsed = fetched.parse(ctx, &self.class, &attempts).await?;
        let read = &parsed.content;
        let compatible = compatibility(ctx, read)?;
        let warnings: Vec<_> = decided.warnings.iter().map(finding_text).collect();
        let found = if decided.signed_by.is_empty() {
            "NotRequired"
        } else {
            "Signed"
        };
        let unpacked = Unpacked {
            verified: (found, verify::describe(&decided.signed_by, &warnings)),
            signed_by: verify::signed_by(&decided.signed_by),
            compatible,
            content: describe(&id, read, summary.bytes),
            warnings: read.warnings.iter().map(finding_text).collect(),
            id,
        };
        let id = &unpacked.id;
        parsed.fetched.keep(ctx, id, user, FAILED)?;
        Ok(unpacked)
    }
}

fn describe(id: &ContentId, content: &Content, bytes: u64) -> BundleContent {
    let package = content.package.as_ref();
    BundleContent {
        digest: id.digest().to_string(),
        spec_digest: String::new(),
        format: Some(content.format.to_string()),
        name: package.map(|package| package.name.clone()),
        version: package.map(|package| package.version.to_string()),
        objects: (!format::is_rendered_by_command(content.format))
            .then_some(content.objects.len() as u64),
        bytes: Some(bytes),
        seal: None,
    }
}
