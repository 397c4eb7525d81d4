//! A policy whose keys and trust roots were read: what the decision works with.
//! Not here: what their texts mean (bundle-trust brings that in as `Material`).

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

/// How an authority is recognised, with everything at hand.
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
    /// Whether that signature is by this authority.
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
    /// How it is recognised.
    pub who: Who,
    /// What it must attest as well.
    pub attestations: Vec<String>,
}

impl ReadyAuthority {
    /// Whether that is a signature by this authority.
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
    /// What was written.
    pub policy: &'a Policy,
    /// The authorities; the same signer may stand under several names.
    pub authorities: Vec<ReadyAuthority>,
    /// Why it refuses everything it matches, if it does.
    pub problems: Findings,
    /// What could not be read just now.
    pub unavailable: Vec<Finding>,
}

impl ReadyPolicy<'_> {
    /// How many of the authorities are certainly not the same under another name.
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
