//! Stored blobs, manifests and uploads in progress.

use std::collections::BTreeMap;

use bundle_core::reference::Digest;
use bytes::Bytes;
use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(super) struct Store {
    /// Blobs by repository and digest.
    blobs: BTreeMap<(String, String), Bytes>,
    /// Manifests by repository and tag or digest: media type and bytes.
    manifests: BTreeMap<(String, String), (String, Bytes)>,
    /// Received bytes of uploads in progress.
    uploads: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Store {
    pub(super) fn blob(&self, repository: &str, digest: &str) -> Option<Bytes> {
        let key = (repository.to_owned(), digest.to_owned());
        self.blobs.get(&key).cloned()
    }

    pub(super) fn put_blob(&mut self, repository: &str, bytes: Bytes) -> Digest {
        let digest = Digest::of(&bytes);
        self.blobs
            .insert((repository.to_owned(), digest.to_string()), bytes);
        digest
    }

    pub(super) fn manifest(&self, repository: &str, name: &str) -> Option<&(String, Bytes)> {
        self.manifests
            .get(&(repository.to_owned(), name.to_owned()))
    }

    pub(super) fn put_manifest(
        &mut self,
        repository: &str,
        name: &str,
        media_type: &str,
        bytes: &Bytes,
    ) -> Digest {
        let digest = Digest::of(bytes);
        for name in [name, digest.as_str()] {
            self.manifests.insert(
                (repository.to_owned(), name.to_owned()),
                (media_type.to_owned(), bytes.clone()),
            );
        }
        digest
    }

    pub(super) fn publish(&mut self, repository: &str, tag: &str, tar: &[u8]) -> Digest {
        let diff_id = Digest::of(tar);
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        })
        .to_string();
        let (config_size, config) = (config.len(), self.put_blob(repository, config.into()));
        let layer = self.put_blob(repository, Bytes::copy_from_slice(tar));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size },
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": tar.len() }],
        });
        self.put_manifest(
            repository,
            tag,
            "application/vnd.oci.image.manifest.v1+json",
            &manifest.to_string().into(),
        )
    }

    pub(super) fn begin(&mut self) -> u64 {
        self.next += 1;
        self.uploads.insert(self.next, Vec::new());
        self.next
    }

    /// Returns the number of bytes received for an upload; `None` if the upload does not exist.
    pub(super) fn received_bytes(&self, upload: u64) -> Option<usize> {
        self.uploads.get(&upload).map(Vec::len)
    }

    pub(super) fn append(&mut self, upload: u64, bytes: &[u8]) {
        if let Some(begun) = self.uploads.get_mut(&upload) {
            begun.extend_from_slice(bytes);
        }
    }

    pub(super) fn cut(&mut self, upload: u64, length: usize) {
        if let Some(begun) = self.uploads.get_mut(&upload) {
            begun.truncate(length);
        }
    }

    pub(super) fn uploads(&self) -> usize {
        self.uploads.len()
    }

    pub(super) fn tags(&self, repository: &str) -> Vec<String> {
        self.manifests
            .keys()
            .filter(|(place, name)| place == repository && !name.contains(':'))
            .map(|(_, name)| name.clone())
            .collect()
    }

    pub(super) fn finish(&mut self, upload: u64) -> Option<Bytes> {
        self.uploads.remove(&upload).map(Bytes::from)
    }

    /// Returns the descriptors of the referrers of `subject`, sorted by digest.
    pub(super) fn referrers(&self, repository: &str, subject: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for ((place, name), (media_type, bytes)) in &self.manifests {
            let Ok(document) = serde_json::from_slice::<Value>(bytes) else {
                continue;
            };
            if place == repository && name.contains(':') && document["subject"]["digest"] == subject
            {
                found.push(json!({
                    "mediaType": media_type, "digest": name, "size": bytes.len(),
                    "artifactType": document["artifactType"],
                    "annotations": document["annotations"],
                }));
            }
        }
        found
    }
}
