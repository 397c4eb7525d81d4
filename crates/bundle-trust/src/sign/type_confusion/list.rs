//! Detects files whose top level is a JSON list. serde and other parsers read the fields of an
//! object from a list by position.

/// Returns `true` if a parser could read the list at the beginning of `content` by position, as a
/// manifest or as a payload. These lists are detected:
/// - A list that begins with a number and later contains an object: read as a manifest.
/// - A list with an object whose key `image` has an object or a list as value: read as a payload.
/// - A list within the list: read as a manifest or a payload.
///
/// The syntax is not checked, because some parsers accept the text before a syntax error.
pub(super) fn is_read_by_position(content: &[u8]) -> bool {
    let mut scan = Scan::default();
    let mut at = 0;
    while let Some(byte) = content.get(at) {
        let end = if *byte == b'"' {
            string_end(content, at)
        } else {
            at + 1
        };
        let rest = content.get(end..).unwrap_or_default();
        match scan.token(&content[at..end.min(content.len())], rest) {
            Progress::GoesOn => at = end,
            Progress::Found => return true,
            Progress::Over => return false,
        }
    }
    false
}

enum Progress {
    GoesOn,
    Found,
    Over,
}

#[derive(Default)]
struct Scan {
    depth: usize,
    /// `true` if the first element is a number; `None` before the first element.
    begins_with_number: Option<bool>,
    key: Key,
}

/// State of the current key, in an object that is an element of the list.
#[derive(Default, PartialEq)]
enum Key {
    #[default]
    Expected,
    Image,
    Other,
}

impl Scan {
    fn token(&mut self, token: &[u8], rest: &[u8]) -> Progress {
        match token[0] {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            opening @ (b'[' | b'{') => return self.open(opening == b'{', rest),
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Progress::Over;
                }
            }
            b'"' if self.depth == 2 && self.key == Key::Expected => {
                let is_image = name(token) == "image";
                self.key = if is_image { Key::Image } else { Key::Other };
            }
            b',' if self.depth == 2 => self.key = Key::Expected,
            first => {
                let is_number = first == b'-' || first.is_ascii_digit();
                self.begins_with_number.get_or_insert(is_number);
            }
        }
        Progress::GoesOn
    }

    fn open(&mut self, is_object: bool, rest: &[u8]) -> Progress {
        let is_found = match self.depth {
            1 if is_object => {
                self.key = Key::Expected;
                *self.begins_with_number.get_or_insert(false)
            }
            // In TOML, `[[name]]` begins in the same way and is not a list.
            1 => begins_value(rest),
            2 => self.key == Key::Image,
            _ => false,
        };
        self.depth += 1;
        if is_found {
            Progress::Found
        } else {
            Progress::GoesOn
        }
    }
}

/// Returns the index after the string that begins at `at`.
fn string_end(content: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(byte) = content.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    content.len()
}

fn name(text: &[u8]) -> String {
    use serde::Deserialize as _;
    #[expect(
        clippy::disallowed_methods,
        reason = "the name is read as leniently as by any other reader, and is not trusted"
    )]
    let mut reader = serde_json::Deserializer::from_slice(text);
    super::Name::deserialize(&mut reader).map_or_else(|_| String::new(), |super::Name(name)| name)
}

/// Returns `true` if `rest` begins with a JSON value or the end of a list.
fn begins_value(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    let words: [&[u8]; 3] = [b"true", b"false", b"null"];
    match rest.first() {
        None | Some(b'[' | b']' | b'{' | b'"' | b'0'..=b'9') => true,
        Some(b'-') => rest.get(1).is_none_or(u8::is_ascii_digit),
        Some(_) => words.into_iter().any(|word| rest.starts_with(word)),
    }
}
