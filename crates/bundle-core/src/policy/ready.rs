//! Policies with parsed keys and trust roots, as input of the decision. `bundle-trust` implements
//! the parser ([`Material`]).

use super::{
    document::Policy,
    found::{Accepted, KeyId, Meaning, RootId, Signer},
    identity::Identity,
};
use crate::diagnostic::{Finding, Findings};

/// Reads the texts of keys and trust roots.
pub trait Material {
    /// The key in this PEM text.
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding>;
    /// The trust root in this JSON text, or the public one. An error if it cannot be read or has expired.
    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding>;
}

/// Parsed key or identities of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// By this key.
    Key(KeyId),
    /// By a certificate for one of these identities that holds under this root.
    Identities {
        /// One is enough.
        identities: Vec<Identity>,
        /// The trust root.
        root: RootId,
    },
}

impl Who {
    /// Returns `true` if the signer is this authority.
    pub fn is(&self, accepted: &Accepted) -> bool {
        match (self, &accepted.signer) {
            (Self::Key(key), Signer::Key(by)) => key == by,
            (Self::Identities { identities, root }, Signer::Identity { name, roots }) => {
                roots.contains(root) && identities.iter().any(|identity| identity.matches(name))
            }
            _ => false,
        }
    }
}

/// An authority, ready to be looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyAuthority {
    /// Its name.
    pub name: String,
    /// Key or identities.
    pub who: Who,
    /// Predicate types that it must attest as well.
    pub attestations: Vec<String>,
}

impl ReadyAuthority {
    /// Returns `true` if this is a signature, not an attestation, by this authority.
    pub(super) fn signed(&self, accepted: &Accepted) -> bool {
        accepted.meaning == Meaning::Signed && self.who.is(accepted)
    }

    /// The attestations that it has not made.
    pub(super) fn unattested<'a>(&'a self, found: &[&Accepted]) -> Vec<&'a str> {
        let made = |wanted: &str| {
            found.iter().any(|accepted| {
                matches!(&accepted.meaning, Meaning::Attested(made) if made == wanted)
                    && self.who.is(accepted)
            })
        };
        let wanted = self.attestations.iter().map(String::as_str);
        wanted.filter(|wanted| !made(wanted)).collect()
    }
}

/// A policy whose keys and roots were read.
#[derive(Debug, Clone)]
pub struct ReadyPolicy<'a> {
    /// Policy as parsed from the object.
    pub policy: &'a Policy,
    /// The authorities; the same signer may stand under several names.
    pub authorities: Vec<ReadyAuthority>,
    /// Errors for which the policy rejects every reference that it matches.
    pub problems: Findings,
    /// Keys or trust roots that could not be read now; retry later.
    pub unavailable: Vec<Finding>,
}

impl ReadyPolicy<'_> {
    /// Returns the number of authorities that are certainly different, whatever their names.
    pub fn distinct(&self) -> usize {
        let mut seen: Vec<&Who> = Vec::new();
        for authority in &self.authorities {
            if !seen.contains(&&authority.who) {
                seen.push(&authority.who);
            }
        }
        seen.len()
    }
}
