//! Looking at an image without pulling it: what a review needs to know of it.
//! Not here: whether its signatures hold (bundle_trust) and what follows (bundle_core::review).

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};

use super::{Client, RegistryError};
use crate::manifest::Manifest;

/// What an image looks like from outside.
#[derive(Debug, Clone)]
pub struct Looked {
    /// What the reference means now.
    pub pinned: PinnedReference,
    /// Annotations of its manifest.
    pub annotations: BTreeMap<String, String>,
    /// What lies beside it, or why that is not known. Empty where nobody asked.
    pub signatures: Result<Vec<RawSignature>, Unavailable>,
}

impl Looked {
    /// What somebody else has brought along of `pinned`: its manifest, whose digest they have compared, and signatures. The error is one sentence.
    pub fn brought(
        pinned: PinnedReference,
        manifest: Vec<u8>,
        signatures: Vec<RawSignature>,
    ) -> Result<Self, String> {
        let manifest = Manifest::parse(manifest.into(), None)?;
        Ok(Self {
            pinned,
            annotations: manifest.annotations,
            signatures: Ok(signatures),
        })
    }
}

impl Client {
    /// Resolves the reference, and reads the manifest and, if `signatures` are wanted, those beside it.
    pub async fn look(
        &self,
        reference: &Reference,
        signatures: bool,
    ) -> Result<Looked, RegistryError> {
        let pinned = reference.pin(self.resolve(reference).await?);
        let beside = async {
            if signatures {
                self.signatures(&pinned).await.map_err(Unavailable::from)
            } else {
                Ok(Vec::new())
            }
        };
        let (manifest, signatures) = futures::join!(self.manifest(&pinned), beside);
        Ok(Looked {
            annotations: manifest?.annotations,
            pinned,
            signatures,
        })
    }
}
