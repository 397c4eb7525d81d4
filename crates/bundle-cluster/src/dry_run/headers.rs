//! Impersonation headers for a requester, exactly as the API server authenticated it. A value that
//! cannot be sent is an error. Values are never dropped.

use bundle_core::review::Requester;
use http::{HeaderMap, HeaderName, HeaderValue};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// Prefix of the headers for extra fields.
const EXTRA: &str = "impersonate-extra-";

/// Requester that cannot be sent as headers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} cannot be sent in a header without changes")]
pub struct IdentityError {
    /// The part of the requester: `user name`, `uid`, `group` or `extra field`.
    pub what: &'static str,
    /// Value that cannot be sent in a header.
    pub value: String,
}

/// Returns the headers for user, uid, each group and each value of each extra field.
pub(super) fn of(requester: &Requester) -> Result<HeaderMap, IdentityError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER, filled("user name", &requester.user)?);
    if !requester.uid.is_empty() {
        headers.insert(UID, filled("uid", &requester.uid)?);
    }
    for group in &requester.groups {
        headers.append(GROUP, filled("group", group)?);
    }
    for (key, values) in &requester.extra {
        let name = extra_name(key)?;
        // A field without values cannot be sent as a header.
        if values.is_empty() {
            return Err(refused("extra field", key));
        }
        for text in values {
            headers.append(name.clone(), value("extra field", text)?);
        }
    }
    Ok(headers)
}

fn refused(what: &'static str, value: &str) -> IdentityError {
    IdentityError {
        what,
        value: value.to_owned(),
    }
}

fn filled(what: &'static str, text: &str) -> Result<HeaderValue, IdentityError> {
    if text.is_empty() {
        return Err(refused(what, text));
    }
    value(what, text)
}

/// Returns `text` as the value of a header. Rejects a value with surrounding spaces: HTTP servers
/// remove these spaces, so the value would name a different identity.
fn value(what: &'static str, text: &str) -> Result<HeaderValue, IdentityError> {
    if text.trim_matches([' ', '\t']).len() != text.len() {
        return Err(refused(what, text));
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| refused(what, text))
}

/// Returns the header name of an extra field. The API server converts the name to lower case and
/// then decodes it. Therefore all characters except lower case letters, digits and `-_.` are
/// percent-encoded, including capitals.
fn extra_name(key: &str) -> Result<HeaderName, IdentityError> {
    use std::fmt::Write as _;
    let mut name = EXTRA.to_owned();
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            write!(name, "%{byte:02x}").ok();
        }
    }
    if key.is_empty() {
        return Err(refused("extra field", key));
    }
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused("extra field", key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(user: &str) -> Requester {
        Requester {
            user: user.to_owned(),
            ..Requester::default()
        }
    }

    #[test]
    fn names_user_uid_groups_and_extra_fields() {
        let requester = Requester {
            uid: "7".to_owned(),
            groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
            extra: [(
                "example.com/Scopes".to_owned(),
                vec!["a b".to_owned(), "c".to_owned()],
            )]
            .into(),
            ..requester("jürgen@example.com")
        };
        let headers = of(&requester).unwrap();
        assert_eq!(headers[USER].as_bytes(), "jürgen@example.com".as_bytes());
        assert_eq!(headers[UID], "7");
        let groups: Vec<_> = headers.get_all(GROUP).iter().collect();
        assert_eq!(groups, ["dev", "system:authenticated"]);
        let name = "impersonate-extra-example.com%2f%53copes";
        let extra: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(extra, ["a b", "c"]);
    }

    #[test]
    fn rejects_identities_that_headers_would_change() {
        for user in [
            "",
            " admin",
            "admin\t",
            "a\r\nImpersonate-Group: system:masters",
            "a\0",
        ] {
            assert!(of(&requester(user)).is_err(), "{user:?}");
        }
        let mut grouped = requester("ana");
        grouped.groups = vec![String::new()];
        assert_eq!(of(&grouped).unwrap_err().what, "group");
        let mut without_values = requester("ana");
        without_values.extra = [("scopes".to_owned(), Vec::new())].into();
        assert!(of(&without_values).is_err());
        let mut without_key = requester("ana");
        without_key.extra = [(String::new(), vec!["a".to_owned()])].into();
        assert!(of(&without_key).is_err());
    }
}
