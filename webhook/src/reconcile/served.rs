//! Archives of the content of Bundles for the content service. Content is served only if its seal
//! is valid for the Bundle and for the current spec of the Bundle.

use std::io;
use std::sync::Arc;

use bundle_core::cancellation::Cancellation;
use bundle_core::content::ContentId;
use bundle_core::names::KubeName;
use bundle_core::review::{CheckedBundleSpec, Requester};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::archives::{ArchiveError, BundleArchive, BundleArchives};
use crate::budget::{WorkerThread, requester_key};
use crate::reconcile::content::archive::{StoredArchive, WRITE_MEMORY};
use crate::reconcile::context::Context;
use crate::reconcile::reader::wait_for_memory;
use crate::reconcile::seal;

/// Opens or creates archives of the content that the leader unpacked.
pub(in crate::reconcile) struct ServedContent(pub(in crate::reconcile) Arc<Context>);

impl BundleArchives for ServedContent {
    fn open<'a>(
        &'a self,
        bundle: &'a KubeName,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Box<dyn BundleArchive>, ArchiveError>> {
        async move {
            let archive = self.archive(bundle, requester).await?;
            Ok(Box::new(archive) as Box<dyn BundleArchive>)
        }
        .boxed()
    }
}

impl ServedContent {
    async fn archive(
        &self,
        name: &KubeName,
        requester: &Requester,
    ) -> Result<StoredArchive, ArchiveError> {
        let Self(ctx) = self;
        let object = ctx.get(&ctx.bundles, name).await;
        let object = object.map_err(|error| ArchiveError::Api(name.clone(), error))?;
        let object = object.ok_or_else(|| ArchiveError::NoBundle(name.clone()))?;
        let not_unpacked = || ArchiveError::NotUnpacked(name.clone());
        let sealed = seal::content(ctx, &object).ok_or_else(not_unpacked)?;
        let spec = CheckedBundleSpec::parse(&object.data["spec"]).map_err(|_| not_unpacked())?;
        if spec.digest != sealed.spec {
            return Err(not_unpacked());
        }
        drop(object);
        let id = ContentId::sealed(&spec.source, &sealed);
        let (budget, key) = (&ctx.shared.budget, ctx.shared.stamp_key());
        if let Some(archive) = ctx.store.open_archive(&id, key.bytes()) {
            return Ok(archive);
        }
        let not_cached = || ArchiveError::NotCached(name.clone());
        let content = ctx.store.open(&id, key.bytes()).ok_or_else(not_cached)?;
        let largest = content.files().iter().map(|file| file.location.length);
        let weight = largest.max().unwrap_or_default() + WRITE_MEMORY;
        let share = wait_for_memory(ctx, &requester.user, weight).await;
        let share = share.ok_or_else(|| ArchiveError::Busy(name.clone()))?;
        let work = {
            let (ctx, user) = (ctx.clone(), requester.user.clone());
            move |cancellation: &Cancellation| {
                let written =
                    ctx.store
                        .store_archive(content, &id, (key.bytes(), &user), cancellation);
                drop(share);
                written
            }
        };
        let written = budget
            .blocking(WorkerThread::Content, requester_key(&requester.user), work)
            .await;
        let panicked = || Err(io::Error::other("the thread panicked"));
        written
            .unwrap_or_else(panicked)
            .map_err(|error| ArchiveError::Unstorable(name.clone(), error))
    }
}
