//! Rules for uploaded archives: the archives that a Bundle accepts, and the users who can upload
//! archives. Texts and results are the same as in RukPak (`internal/uploadmgr/handler.go`).

use std::collections::HashSet;

use crate::reference::Digest;
use crate::review::{Requester, Source};
use crate::rights::AccessReview;

/// Maximum number of groups of a requester. If the requester has more groups, another user cannot
/// upload on behalf of this requester.
const MAX_GROUPS: usize = 32;

/// Reason why a Bundle does not accept an upload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadRejection {
    /// The Bundle has a source of another type.
    #[error("bundle source type is {0:?}; expected \"upload\"")]
    OtherSource(&'static str),
    /// Other content was unpacked before.
    #[error("bundle has already been unpacked, cannot change content of existing bundle")]
    Unpacked,
}

/// Stored and unpacked content of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UploadState<'a> {
    /// Digest of the content that was unpacked; `None` before the first unpacking.
    pub unpacked: Option<&'a Digest>,
    /// True if the cache contains the unpacked content.
    pub is_cached: bool,
    /// Digest of the stored upload; `None` without a stored upload.
    pub stored: Option<&'a Digest>,
}

/// Decision about an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadResult {
    /// The archive is stored, and is unpacked afterwards.
    Stored,
    /// The Bundle has this content already.
    Identical,
}

/// Returns an error if a Bundle with `source` does not accept uploads.
pub fn check_source(source: &Source) -> Result<(), UploadRejection> {
    match source {
        Source::Upload => Ok(()),
        other => Err(UploadRejection::OtherSource(other.kind())),
    }
}

/// Returns the decision about an upload with the digest `uploaded`. After content was unpacked,
/// other content is rejected. The unpacked content is stored again if neither the cache nor the
/// stored uploads contain it.
pub fn decide(state: UploadState<'_>, uploaded: &Digest) -> Result<UploadResult, UploadRejection> {
    let is_unpacked = state.unpacked == Some(uploaded);
    if state.stored == Some(uploaded) && (is_unpacked || state.unpacked.is_none()) {
        return Ok(UploadResult::Identical);
    }
    match state.unpacked {
        None => Ok(UploadResult::Stored),
        Some(_) if is_unpacked && state.is_cached => Ok(UploadResult::Identical),
        Some(_) if is_unpacked => Ok(UploadResult::Stored),
        Some(_) => Err(UploadRejection::Unpacked),
    }
}

/// Group that the API server adds to every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";

/// Returns the groups of `requester` that `caller` does not have. The groups that the API server
/// adds itself are ignored: the groups of all authenticated users and of ServiceAccounts. The API
/// server adds these groups to an impersonated user too.
pub fn missing_groups<'a>(caller: &Requester, requester: &'a Requester) -> Vec<&'a str> {
    let of_caller: HashSet<&str> = caller.groups.iter().map(String::as_str).collect();
    let groups = impersonated_groups(requester);
    let missing = groups.filter(|group| !of_caller.contains(group));
    missing.collect()
}

/// Returns the groups that a user must have permission to impersonate in order to act as
/// `requester`.
fn impersonated_groups(requester: &Requester) -> impl Iterator<Item = &str> {
    let of_account = requester.service_account().map(|(namespace, _)| {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ]
    });
    let of_account = of_account.unwrap_or_default();
    let groups = requester.groups.iter();
    groups
        .filter(move |group| *group != AUTHENTICATED && !of_account.contains(group))
        .map(String::as_str)
}

/// Returns `true` if `caller` is `requester`. A user who has left a group since the request is
/// still the same user. But without the group, this user cannot act as the requester
/// ([`missing_groups`]).
pub fn is_same_user(caller: &Requester, requester: &Requester) -> bool {
    caller.user == requester.user && caller.uid == requester.uid
}

/// Returns the permissions that `caller` needs to upload content of a Bundle of `requester`. If the
/// caller is the requester and has all groups of the requester, no permissions are needed. Another
/// caller needs permission to impersonate the requester, because the content is installed with the
/// permissions of the requester. Returns `None` if the requester has too many groups to check.
pub fn required_impersonation(
    caller: &Requester,
    requester: &Requester,
) -> Option<Vec<AccessReview>> {
    if is_same_user(caller, requester) && missing_groups(caller, requester).is_empty() {
        return Some(Vec::new());
    }
    let question = |resource, namespace: Option<&str>, name: &str| {
        AccessReview::resource("impersonate", "", resource, namespace, Some(name))
    };
    let user = match requester.service_account() {
        Some((namespace, name)) => question("serviceaccounts", Some(namespace), name),
        None => question("users", None, &requester.user),
    };
    let groups = impersonated_groups(requester);
    let questions: Vec<_> = [user]
        .into_iter()
        .chain(groups.map(|group| question("groups", None, group)))
        .take(MAX_GROUPS + 2)
        .collect();
    (questions.len() <= MAX_GROUPS + 1).then_some(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_content_never_changes() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let rejected = Err(UploadRejection::Unpacked);
        let (stored, identical) = (Ok(UploadResult::Stored), Ok(UploadResult::Identical));
        // Columns: digest of the unpacked content, `true` if it is cached, digest of the stored
        // upload, decision about an upload of `a`.
        for (unpacked, is_cached, held, expected) in [
            (None, false, None, stored.clone()),
            (None, false, Some(&a), identical.clone()),
            (None, false, Some(&b), stored.clone()),
            (Some(&a), true, None, identical.clone()),
            (Some(&a), true, Some(&a), identical.clone()),
            (Some(&a), false, Some(&a), identical),
            // Neither the cache nor the stored uploads contain the content.
            (Some(&a), false, None, stored.clone()),
            (Some(&a), false, Some(&b), stored),
            (Some(&b), true, None, rejected.clone()),
            (Some(&b), false, None, rejected.clone()),
            (Some(&b), true, Some(&a), rejected),
        ] {
            let state = UploadState {
                unpacked,
                is_cached,
                stored: held,
            };
            assert_eq!(decide(state, &a), expected, "{state:?}");
        }
    }

    fn user(name: &str, groups: &[&str]) -> Requester {
        Requester {
            user: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..Requester::default()
        }
    }

    #[test]
    fn other_users_must_be_able_to_impersonate_the_requester() {
        let asked = |caller: &Requester, requester: &Requester| {
            let questions = required_impersonation(caller, requester)?;
            let texts = questions.iter().map(|question| match question {
                AccessReview::Resource {
                    verb,
                    resource,
                    namespace,
                    name,
                    ..
                } => format!("{verb} {resource} {namespace}/{}", name.as_deref().unwrap()),
                AccessReview::Path { .. } => panic!("{question:?}"),
            });
            Some(texts.collect::<Vec<_>>())
        };
        let ana = user("ana", &["team-a", "system:authenticated"]);
        assert_eq!(asked(&ana, &ana), Some(vec![]));
        // The same user has left the group, or has a token without the group.
        let expected = ["impersonate users /ana", "impersonate groups /team-a"];
        let expected = expected.map(str::to_owned);
        let left = user("ana", &["team-b", "system:authenticated"]);
        assert_eq!(asked(&left, &ana), Some(expected.into()));
        assert_eq!(missing_groups(&left, &ana), ["team-a"]);
        let joined = user("ana", &["team-b", "team-a"]);
        assert_eq!(asked(&joined, &ana), Some(vec![]));
        let eve = user("eve", &[]);
        let expected = ["impersonate users /ana", "impersonate groups /team-a"];
        assert_eq!(asked(&eve, &ana), Some(expected.map(str::to_owned).into()));
        // Another user with the same name and a different uid.
        let later = Requester {
            uid: "2".to_owned(),
            ..ana.clone()
        };
        assert_eq!(asked(&later, &ana).unwrap().len(), 2);
        let account = "system:serviceaccount:team-a:ci";
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:team-a",
            "system:authenticated",
        ];
        let account = user(account, &groups);
        let expected = "impersonate serviceaccounts team-a/ci".to_owned();
        assert_eq!(asked(&eve, &account), Some(vec![expected]));
        let groups: Vec<_> = (0..33).map(|number| number.to_string()).collect();
        let groups: Vec<_> = groups.iter().map(String::as_str).collect();
        assert_eq!(asked(&eve, &user("ana", &groups)), None);
    }
}
