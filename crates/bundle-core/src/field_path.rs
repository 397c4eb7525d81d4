//! Paths of fields in messages (`spec.ports[0].name`), and JSON pointers (RFC 6901).

/// Returns the path of the field `key` of the map at `path`.
pub(crate) fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'));
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key}]"),
    }
}

/// Returns the path of the item `index` of the list at `path`.
pub(crate) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Converts a JSON pointer to a path below `path`: `/a/0/b` becomes `PATH.a[0].b`.
pub(crate) fn of_pointer(path: &str, pointer: &str) -> String {
    let tokens = pointer.split('/').skip(1);
    tokens.fold(path.to_owned(), |path, token| {
        let is_index = token.bytes().all(|byte| byte.is_ascii_digit());
        match token.parse() {
            Ok(index) if is_index => item(&path, index),
            _ => child(&path, &pointer_key(token)),
        }
    })
}

/// Returns the key for one token of a JSON pointer: decodes `~1` and `~0`.
pub(crate) fn pointer_key(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_converted_to_paths() {
        for (path, pointer, expected) in [
            ("", "", ""),
            ("spec", "", "spec"),
            ("", "/a/0/b", "a[0].b"),
            ("spec", "/a~1b/c~0", "spec[a/b][c~]"),
            ("spec", "/0", "spec[0]"),
            ("spec", "/+5/", "spec[+5][]"),
        ] {
            assert_eq!(of_pointer(path, pointer), expected);
        }
    }
}
