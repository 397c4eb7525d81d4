//! Assignment of distinct signers to the authorities of a policy. No signer is assigned to two
//! authorities.

use std::collections::BTreeMap;

use super::found::{Signer, ValidSignature};
use super::identity::IdentityName;
use super::key_id::KeyId;

/// Identity of a signer for comparison: the key, or the identity of the certificate. The name of
/// the authority and the trust root are ignored.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SignerIdentity<'a> {
    Key(&'a KeyId),
    Identity(&'a IdentityName),
}

impl<'a> From<&'a Signer> for SignerIdentity<'a> {
    fn from(signer: &'a Signer) -> Self {
        match signer {
            Signer::Key(key) => Self::Key(key),
            Signer::Identity { name, .. } => Self::Identity(name),
        }
    }
}

/// Assigns to each authority a signature by a signer that is assigned to no other authority. As
/// many authorities as possible receive a signature (maximum bipartite matching).
///
/// An authority may accept several signers (a pattern), and several authorities may accept the same
/// signer. A simple assignment in order could leave an authority without a signer, although another
/// assignment exists.
pub(super) fn distinct<'a>(
    candidates: &[Vec<&'a ValidSignature>],
) -> Vec<Option<&'a ValidSignature>> {
    let mut numbers: BTreeMap<SignerIdentity<'a>, usize> = BTreeMap::new();
    let choices: Vec<Vec<(usize, &'a ValidSignature)>> = candidates
        .iter()
        .map(|signatures| {
            let mut choices: Vec<(usize, &'a ValidSignature)> = Vec::new();
            for &accepted in signatures {
                let next = numbers.len();
                let signer = *numbers
                    .entry(SignerIdentity::from(&accepted.signer))
                    .or_insert(next);
                if choices.iter().all(|(known, _)| *known != signer) {
                    choices.push((signer, accepted));
                }
            }
            choices
        })
        .collect();
    let mut authority_of = vec![None; numbers.len()];
    for authority in 0..choices.len() {
        let mut visited = vec![false; authority_of.len()];
        assign(authority, &choices, &mut authority_of, &mut visited);
    }
    let mut assigned = vec![None; choices.len()];
    for (signer, authority) in authority_of.iter().enumerate() {
        if let Some(authority) = *authority {
            let choices: &[(usize, &'a ValidSignature)] = &choices[authority];
            assigned[authority] = choices
                .iter()
                .find(|(known, _)| *known == signer)
                .map(|(_, accepted)| *accepted);
        }
    }
    assigned
}

/// Assigns a signer to `authority`, and reassigns other authorities if necessary. `authority_of`
/// contains the authority of each signer. Returns false if no assignment exists. The recursion is
/// at most as deep as the number of authorities.
fn assign(
    authority: usize,
    choices: &[Vec<(usize, &ValidSignature)>],
    authority_of: &mut [Option<usize>],
    visited: &mut [bool],
) -> bool {
    for &(signer, _) in &choices[authority] {
        if std::mem::replace(&mut visited[signer], true) {
            continue;
        }
        let is_free = match authority_of[signer] {
            None => true,
            Some(holder) => assign(holder, choices, authority_of, visited),
        };
        if is_free {
            authority_of[signer] = Some(authority);
            return true;
        }
    }
    false
}
