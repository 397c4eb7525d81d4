//! Accepted signers of `verify`: any of several keys, or an identity.

use std::sync::Arc;

use bundle_core::diagnostic::{Finding, Findings};
use bundle_core::policy::{self, AcceptedSigner, Identity, KeyId, RawSignature, ValidSignature};
use bundle_core::reference::PinnedReference;
use bundle_trust::attest::PredicateType;
use bundle_trust::verify::{self, Content};
use jiff::Timestamp;

use super::signer::Signer;
use crate::failure::Outcome;
use crate::signer::kms::KeyLocation;
use crate::sigstore::root::{SelectedRoot, TrustRootSettings};
use crate::ui::Ui;

/// Accepted signers.
pub(crate) enum AcceptedSigners {
    /// Any of these public keys.
    Keys(Vec<KeyLocation>),
    /// A certificate for this identity.
    Identity(Identity),
}

/// Accepted signers with loaded keys and trust root.
pub(crate) struct LoadedSigners {
    accepted: Vec<AcceptedSigner>,
    material: verify::TrustMaterial,
    /// Locations of the keys.
    locations: Vec<(KeyId, KeyLocation)>,
}

impl AcceptedSigners {
    /// Returns the trust root. If the accepted signers are keys, the trust root only confirms
    /// signing times.
    pub(crate) async fn root(&self, root: TrustRootSettings, ui: &mut Ui) -> Outcome<SelectedRoot> {
        match self {
            Self::Keys(_) => root.open_for_times(ui).await,
            Self::Identity(_) => root.open(ui).await,
        }
    }

    /// Reads the public keys.
    pub(crate) fn read(self, root: &SelectedRoot, now: Timestamp) -> Outcome<LoadedSigners> {
        let root = &root.root;
        let mut ready = LoadedSigners {
            accepted: Vec::new(),
            material: verify::TrustMaterial {
                keys: Vec::new(),
                roots: vec![Arc::clone(root)],
                now,
            },
            locations: Vec::new(),
        };
        match self {
            Self::Keys(locations) => {
                for location in locations {
                    let key = location.public()?;
                    ready.accepted.push(AcceptedSigner::Key(key.id().clone()));
                    ready.locations.push((key.id().clone(), location));
                    ready.material.keys.push(key);
                }
            }
            Self::Identity(identity) => {
                root.check(now)?;
                ready.accepted.push(AcceptedSigner::Identities {
                    identities: vec![identity],
                    root: root.id().clone(),
                });
            }
        }
        Ok(ready)
    }
}

impl LoadedSigners {
    /// Returns the signers of the pinned content. If `kinds` contains predicate types, returns the
    /// signers that attested all these types.
    pub(super) fn of_digest(
        &self,
        kinds: &[PredicateType],
        pinned: &PinnedReference,
        signatures: &[RawSignature],
    ) -> Result<Vec<Signer>, Findings> {
        if kinds.is_empty() {
            let accepted =
                verify::signatures_by(signatures, pinned, &self.accepted, &self.material)?;
            let accepted = accepted.into_iter();
            return Ok(accepted
                .map(|one| Signer::from_signature(self.name(&one), one))
                .collect());
        }
        let attested = verify::attested(signatures, pinned, &self.accepted, kinds, &self.material)?;
        let attested = attested.into_iter();
        Ok(attested
            .map(|one| Signer::from_attestation(self.name(&one.accepted), one))
            .collect())
    }

    /// Returns the signer of a file. If `kinds` contains a predicate type, returns the signer that
    /// attested this type. The Sigstore bundle of a file contains one attestation, so several
    /// different types are an error.
    pub(crate) fn of_file(
        &self,
        kinds: &[PredicateType],
        bundle: Vec<u8>,
        content: &Content<'_>,
    ) -> Result<Signer, Finding> {
        if kinds.is_empty() {
            let accepted = verify::blob(bundle, content, &self.accepted, &self.material)?;
            return Ok(Signer::from_signature(self.name(&accepted), accepted));
        }
        let one = verify::blob_attested(bundle, content, &self.accepted, kinds, &self.material)?;
        Ok(Signer::from_attestation(self.name(&one.accepted), one))
    }

    /// Returns the location of the key that signed. For a certificate, returns the issuer of the
    /// identity.
    fn name(&self, accepted: &ValidSignature) -> String {
        match &accepted.signer {
            policy::Signer::Identity { name, .. } => name.issuer.clone(),
            policy::Signer::Key(id) => {
                let mut locations = self.locations.iter();
                let location = locations.find(|(key, _)| key == id);
                location
                    .map(|(_, location)| location.to_string())
                    .unwrap_or_default()
            }
        }
    }
}
