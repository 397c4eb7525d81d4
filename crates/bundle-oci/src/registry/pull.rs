//! Pulling a bundle: layers stream from the connection through the unpacker, and never lie about in memory as a whole.
//! Not here: what the unpacker takes and refuses (unpack).

use std::io::{self, Read};

use bundle_core::format::Files;
use bundle_core::reference::PinnedReference;
use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

use super::download::Transfer;
use super::{Client, Reason, RegistryError, Repository};
use crate::limits::{Limits, MANIFEST_BYTES};
use crate::manifest::Manifest;
use crate::unpack::Unpacking;

/// Pieces of a layer that wait for the unpacker; each is at most a few dozen KiB.
const PIECES: usize = 8;

impl Client {
    /// The files of a bundle. Manifest, configuration and layers are checked against their digests while they are read, within `limits`.
    pub async fn pull_files(
        &self,
        pinned: &PinnedReference,
        limits: &Limits,
    ) -> Result<Files, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        self.run("pull", pinned, self.deadlines.transfer, async {
            let manifest = self.get_manifest(repository, pinned.digest()).await?;
            self.unpack(repository, &manifest, limits).await
        })
        .await
    }

    /// The files of a bundle whose manifest has been read already.
    pub async fn pull_content(
        &self,
        pinned: &PinnedReference,
        manifest: &Manifest,
        limits: &Limits,
    ) -> Result<Files, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        let work = self.unpack(repository, manifest, limits);
        self.run("pull", pinned, self.deadlines.transfer, work)
            .await
    }

    async fn unpack(
        &self,
        repository: &Repository,
        manifest: &Manifest,
        limits: &Limits,
    ) -> Result<Files, Reason> {
        let config = self
            .get_blob(
                repository,
                &manifest.config,
                MANIFEST_BYTES,
                "the image configuration",
            )
            .await?;
        let mut unpacking = Unpacking::new(&manifest.config, &config, &manifest.layers, *limits)
            .map_err(Reason::Content)?;
        for (index, layer) in manifest.layers.iter().enumerate() {
            if !unpacking.wants(index) {
                continue;
            }
            // The unpacker hashes what it reads.
            let transfer = self.transfer(repository, layer, 0, None);
            let (pieces, source) = mpsc::channel(PIECES);
            // Inflating and hashing take a whole core; if this call ends early, the channel closes and the thread with it.
            let unpacker = tokio::task::spawn_blocking(move || {
                let done = unpacking.layer(index, Pieces::new(source));
                (unpacking, done)
            });
            let fed = feed(transfer, pieces).await;
            let (back, done) = unpacker.await.map_err(|_| {
                Reason::Malformed(
                    "the layer could not be unpacked: the unpacker ended early".to_owned(),
                )
            })?;
            fed?;
            done.map_err(Reason::Content)?;
            unpacking = back;
        }
        Ok(unpacking.finish())
    }
}

async fn feed(mut transfer: Transfer, pieces: mpsc::Sender<Bytes>) -> Result<(), Reason> {
    while let Some(piece) = transfer.piece().await? {
        // The unpacker has seen enough.
        if pieces.send(piece).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Pieces from a channel, as something to read on a blocking thread.
struct Pieces {
    source: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Pieces {
    fn new(source: mpsc::Receiver<Bytes>) -> Self {
        Self {
            source,
            current: Bytes::new(),
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.source.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let taken = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}
