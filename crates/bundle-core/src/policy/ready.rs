//! Policies with parsed keys and trust roots, as input of the decision. `bundle-trust` implements
//! the parser ([`KeyParser`]).

use super::{
    authority::{Authority, AuthorityKind, KeySource, RootSource},
    document::Policy,
    found::{Meaning, RootId, Signer, ValidSignature},
    identity::Identity,
    key_id::KeyId,
    reader::unreadable,
};
use crate::diagnostic::{Finding, Findings};

/// Parses the texts of keys and trust roots.
pub trait KeyParser {
    /// Parses the key in PEM text.
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding>;
    /// Parses the trust root in this JSON text. Without a text, returns the public trust root.
    /// Returns an error if the trust root is invalid or expired.
    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding>;
}

/// Parsed key or identities of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptedSigner {
    /// Accepted key.
    Key(KeyId),
    /// Certificate for one of these identities, valid under the trust root.
    Identities {
        /// Accepted identities. A certificate must match at least one of them.
        identities: Vec<Identity>,
        /// Trust root under which the certificate must be valid.
        root: RootId,
    },
}

impl AcceptedSigner {
    /// Returns `true` if this signer made the signature.
    pub fn made(&self, accepted: &ValidSignature) -> bool {
        match (self, &accepted.signer) {
            (Self::Key(key), Signer::Key(by)) => key == by,
            (Self::Identities { identities, root }, Signer::Identity { name, roots }) => {
                roots.contains(root) && identities.iter().any(|identity| identity.matches(name))
            }
            _ => false,
        }
    }
}

/// Authority with its parsed key or identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedAuthority {
    /// Name of the authority.
    pub name: String,
    /// Key or identities that the authority accepts.
    pub signer: AcceptedSigner,
    /// Predicate types of the required attestations.
    pub attestations: Vec<String>,
}

impl ParsedAuthority {
    /// Returns `true` if `accepted` is a signature, not an attestation, by this authority.
    pub(super) fn signed(&self, accepted: &ValidSignature) -> bool {
        accepted.meaning == Meaning::Signed && self.signer.made(accepted)
    }

    /// Returns the required attestations that the signer has not made.
    pub(super) fn unattested<'a>(&'a self, found: &[&ValidSignature]) -> Vec<&'a str> {
        let made = |wanted: &str| {
            found.iter().any(|accepted| {
                matches!(&accepted.meaning, Meaning::Attested(made) if made == wanted)
                    && self.signer.made(accepted)
            })
        };
        let wanted = self.attestations.iter().map(String::as_str);
        wanted.filter(|wanted| !made(wanted)).collect()
    }
}

/// Policy with parsed keys and trust roots.
#[derive(Debug, Clone)]
pub struct ParsedPolicy<'a> {
    /// Policy as parsed from the object.
    pub policy: &'a Policy,
    /// Authorities. Several authorities may have the same signer.
    pub authorities: Vec<ParsedAuthority>,
    /// Errors that make the policy reject every reference that it matches.
    pub problems: Findings,
    /// Keys or trust roots that could not be read now. A retry may succeed.
    pub unavailable: Vec<Finding>,
}

impl Policy {
    /// Returns the policy with keys and trust roots parsed by `material`.
    pub fn with_keys(&self, material: &mut impl KeyParser) -> ParsedPolicy<'_> {
        let mut ready = ParsedPolicy {
            policy: self,
            authorities: Vec::new(),
            problems: self.problems.clone(),
            unavailable: self.unavailable.clone(),
        };
        for (index, authority) in self.authorities.iter().enumerate() {
            let path = format!("spec.authorities[{index}]");
            if let Some(who) = self.accepted_signer(authority, &path, material, &mut ready.problems)
            {
                ready.authorities.push(ParsedAuthority {
                    name: authority.name.clone(),
                    signer: who,
                    attestations: authority.attestations.clone(),
                });
            }
        }
        let distinct = ready.distinct();
        if ready.problems.is_empty() && ready.unavailable.is_empty() && distinct < self.threshold {
            ready.problems.push(unreadable(
                &self.name,
                "spec.threshold",
                &format!(
                    "it requires {} different signers, but the authorities have only {distinct}",
                    self.threshold
                ),
            ));
        }
        ready
    }

    fn accepted_signer(
        &self,
        authority: &Authority,
        path: &str,
        material: &mut impl KeyParser,
        problems: &mut Findings,
    ) -> Option<AcceptedSigner> {
        let mut refuse = |path: String, why: &str| {
            problems.push(unreadable(&self.name, &path, why));
            None
        };
        // `true` if the policy already has the reason why a Secret or ConfigMap could not be read.
        let looked_up = !self.problems.is_empty() || !self.unavailable.is_empty();
        match authority.kind.as_ref()? {
            AuthorityKind::Key(KeySource::Inline(pem)) => match material.key(pem) {
                Ok(key) => Some(AcceptedSigner::Key(key)),
                Err(why) => refuse(format!("{path}.key"), &why.message),
            },
            AuthorityKind::Keyless(keyless) => {
                let root: Result<RootId, Finding> = match &keyless.root {
                    RootSource::Public => material.root(None),
                    RootSource::Inline(text) => material.root(Some(text)),
                    RootSource::ConfigMap(_) if looked_up => return None,
                    RootSource::ConfigMap(name) => {
                        let why = format!("the trust root in ConfigMap {name} was not read");
                        return refuse(format!("{path}.keyless.trustRoot"), &why);
                    }
                };
                match root {
                    Ok(root) => Some(AcceptedSigner::Identities {
                        identities: keyless.identities.clone(),
                        root,
                    }),
                    Err(why) => refuse(format!("{path}.keyless.trustRoot"), &why.message),
                }
            }
            AuthorityKind::Key(KeySource::Secret(_)) if looked_up => None,
            AuthorityKind::Key(KeySource::Secret(name)) => {
                let why = format!("the key in Secret {name} was not read");
                refuse(format!("{path}.key"), &why)
            }
        }
    }
}

impl ParsedPolicy<'_> {
    /// Returns the number of authorities with different signers. Authorities that differ only in
    /// their names count as one.
    pub fn distinct(&self) -> usize {
        let mut seen: Vec<&AcceptedSigner> = Vec::new();
        for authority in &self.authorities {
            if !seen.contains(&&authority.signer) {
                seen.push(&authority.signer);
            }
        }
        seen.len()
    }
}
