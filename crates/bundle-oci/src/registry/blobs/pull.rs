//! Pull of a bundle. The unpacker reads each layer while the layer is downloaded.

use std::collections::BTreeMap;

use bundle_core::format::Files;
use bundle_core::reference::PinnedReference;
use futures::stream;

use crate::limits::{Limits, MANIFEST_BYTES};
use crate::manifest::Manifest;
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};
use crate::transfer::blocking::on_thread;
use crate::unpack::{FileSink, InMemory, Unpacker};

impl Client {
    /// Unpacks the files of a bundle into `sink` while the layers are downloaded. Returns `sink`,
    /// and the value that it returned for each file.
    ///
    /// Manifest, configuration and layers are checked against their digests and `limits`.
    pub async fn pull_onto<S>(
        &self,
        pinned: &PinnedReference,
        limits: &Limits,
        sink: S,
    ) -> Result<(BTreeMap<String, S::File>, S), RegistryError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let repository = &Repository::from(pinned.reference());
        self.run("pull", pinned, self.deadlines.transfer, async {
            let manifest = self.get_manifest(repository, pinned.digest()).await?;
            self.unpack(repository, &manifest, limits, sink).await
        })
        .await
    }

    /// Returns the files of a bundle. The caller has already read the manifest.
    pub async fn pull_content(
        &self,
        pinned: &PinnedReference,
        manifest: &Manifest,
        limits: &Limits,
    ) -> Result<Files, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        let work = self.unpack(repository, manifest, limits, InMemory::default());
        let pulled = self.run("pull", pinned, self.deadlines.transfer, work);
        let (files, _) = pulled.await?;
        Ok(files)
    }

    async fn unpack<S>(
        &self,
        repository: &Repository,
        manifest: &Manifest,
        limits: &Limits,
        sink: S,
    ) -> Result<(BTreeMap<String, S::File>, S), RegistryErrorReason>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let config = self
            .get_blob(
                repository,
                &manifest.config,
                MANIFEST_BYTES,
                "the image configuration",
            )
            .await?;
        let (config_descriptor, layers) = (&manifest.config, &manifest.layers);
        let mut unpacking = Unpacker::onto(sink, config_descriptor, &config, layers, *limits)
            .map_err(RegistryErrorReason::Content)?;
        for (index, layer) in manifest.layers.iter().enumerate() {
            if !unpacking.wants(index) {
                continue;
            }
            // The unpacker hashes the bytes, so the download needs no hasher.
            let transfer = self.download(repository, layer, 0, None);
            let pieces = Box::pin(stream::try_unfold(transfer, async |mut transfer| {
                let piece = transfer.piece().await?;
                Ok::<_, RegistryErrorReason>(piece.map(|piece| (piece, transfer)))
            }));
            let unpacker = move |pieces| {
                let done = unpacking.layer(index, pieces);
                (unpacking, done)
            };
            let Some(((back, done), fed)) = on_thread(pieces, unpacker).await else {
                return Err(RegistryErrorReason::Malformed(
                    "the layer could not be unpacked: the unpacker stopped unexpectedly".to_owned(),
                ));
            };
            fed?;
            done.map_err(RegistryErrorReason::Content)?;
            unpacking = back;
        }
        Ok(unpacking.into_parts())
    }
}
