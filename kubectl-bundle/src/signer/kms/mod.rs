//! Keys in key management services. A plugin, the executable `sigstore-kms-NAME`, signs with these
//! keys (sigstore's KMS plugin protocol, v1).

mod location;
mod name;
mod plugin_lookup;
mod protocol;

use std::path::PathBuf;

use bundle_core::diagnostic::Finding;
use bundle_trust::keys::PublicKey;
use bundle_trust::sign;

use protocol::PluginRequest;

pub(crate) use location::KeyLocation;
pub(crate) use name::KmsKey;

/// A key of a KMS plugin, with its public key and the path of the plugin.
pub(crate) struct PluginKey {
    key: KmsKey,
    program: PathBuf,
    public: PublicKey,
}

impl KmsKey {
    /// Finds the program and gets the public key.
    pub(crate) fn open(self) -> Result<PluginKey, Finding> {
        let program = plugin_lookup::on_path(&self)?;
        let public =
            protocol::send_request(&self, &program, &PluginRequest::PublicKey, protocol::LIMITS)?;
        let public = String::from_utf8(public)
            .map_err(|_| protocol::invalid_response(&self, "its public key is not UTF-8"))
            .and_then(|pem| PublicKey::parse(&pem))
            .map_err(|finding| finding.about(self.to_string()))?;
        Ok(PluginKey {
            key: self,
            program,
            public,
        })
    }
}

impl PluginKey {
    fn send_request(&self, what: &PluginRequest<'_>) -> Result<Vec<u8>, Finding> {
        protocol::send_request(&self.key, &self.program, what, protocol::LIMITS)
    }
}

impl sign::Signer for PluginKey {
    fn public(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Finding> {
        self.send_request(&PluginRequest::Signature(message))
    }

    fn signs_digests(&self) -> bool {
        self.public.algorithm() != "Ed25519"
    }

    fn sign_digest(&self, sha256: &[u8]) -> Result<Vec<u8>, Finding> {
        self.send_request(&PluginRequest::SignatureOfDigest(sha256))
    }
}
