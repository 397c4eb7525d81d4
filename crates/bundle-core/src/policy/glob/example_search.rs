//! Search for a name that a pattern matches, by walking the pattern and the grammar of names
//! together. If there is no such name, the pattern matches no reference.

use std::collections::{HashSet, VecDeque};
use std::net::Ipv6Addr;

/// Characters that the search tries in place of a star. Other characters are not needed: in every
/// name, one of these characters can replace them.
const FILL: &[u8] = b"a.1:/";
/// Registries with special rules, which are compared as complete names: `localhost`, which has no
/// dot, and the registries of Docker Hub, in which each repository has two components.
const WORDS: [&[u8]; 5] = [
    b"localhost",
    super::DOCKER_HUB.as_bytes(),
    b"index.docker.io",
    b"registry-1.docker.io",
    b"registry.hub.docker.com",
];
/// Bits of the entries of `WORDS` that are registries of Docker Hub.
const HUB: u8 = 0b1_1110;

/// Returns the shortest `registry/repository` that the canonical `pattern` matches; `None` if the
/// pattern matches no name.
pub(super) fn shortest(pattern: &str) -> Option<String> {
    let (prefix, rest, start) = match pattern.strip_prefix('[') {
        None => ("", pattern, Name::START),
        Some(after) => {
            let (address, _) = after.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            let (prefix, rest) = pattern.split_at(address.len() + 2);
            (prefix, rest, Name::AfterBracket)
        }
    };
    let found = search(rest.as_bytes(), start)?;
    let found = String::from_utf8(found).ok()?;
    Some(format!("{prefix}{found}"))
}

/// Position in the pattern and in the grammar, with its predecessor.
struct Node {
    at: usize,
    name: Name,
    /// Index of the previous node, and the character between both nodes, if any; `None` for the
    /// first node.
    from: Option<(usize, Option<u8>)>,
}

/// Returns the shortest name that a breadth-first search finds; `None` if there is no name.
/// Each pair of positions is visited once, so the length of the pattern limits the work.
fn search(pattern: &[u8], start: Name) -> Option<Vec<u8>> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut queue = VecDeque::new();
    let mut seen = HashSet::new();
    let mut visit = |nodes: &mut Vec<Node>, queue: &mut VecDeque<usize>, node: Node, free| {
        if seen.insert((node.at, node.name)) {
            nodes.push(node);
            let index = nodes.len() - 1;
            if free {
                queue.push_front(index);
            } else {
                queue.push_back(index);
            }
        }
    };
    let first = Node {
        at: 0,
        name: start,
        from: None,
    };
    visit(&mut nodes, &mut queue, first, false);
    while let Some(index) = queue.pop_front() {
        let (at, name) = (nodes[index].at, nodes[index].name);
        let Some(&next) = pattern.get(at) else {
            if name.is_complete() {
                return Some(spelled(&nodes, index));
            }
            continue;
        };
        if next != b'*' {
            if let Some(name) = name.step(next) {
                let node = Node {
                    at: at + 1,
                    name,
                    from: Some((index, Some(next))),
                };
                visit(&mut nodes, &mut queue, node, false);
            }
            continue;
        }
        let double = pattern.get(at + 1) == Some(&b'*');
        let past = Node {
            at: at + if double { 2 } else { 1 },
            name,
            from: Some((index, None)),
        };
        visit(&mut nodes, &mut queue, past, true);
        for &fill in FILL.iter().filter(|fill| double || **fill != b'/') {
            if let Some(name) = name.step(fill) {
                let node = Node {
                    at,
                    name,
                    from: Some((index, Some(fill))),
                };
                visit(&mut nodes, &mut queue, node, false);
            }
        }
    }
    None
}

fn spelled(nodes: &[Node], last: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut at = last;
    while let Some((before, letter)) = nodes[at].from {
        text.extend(letter);
        at = before;
    }
    text.reverse();
    text
}

/// Position in the grammar of names, `registry/repository`, which are parsed by
/// [`crate::reference::Reference`]. Names are in lower case, and ports have no leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Host(Host),
    /// Position after the address of an IPv6 host.
    AfterBracket,
    Port {
        value: u32,
        is_hub: bool,
    },
    Repository {
        after: Component,
        /// `true` if a second component must follow.
        needs_more: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Host {
    label: Label,
    has_dot: bool,
    /// State of an IPv4 address: number of complete octets, value of the current octet, and `true`
    /// if the current octet has a digit.
    v4: Option<(u8, u16, bool)>,
    /// Bits of the entries of `WORDS` that begin with the characters of the host.
    words: u8,
    length: usize,
}

/// Last label of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Label {
    Empty,
    /// The label is `0`.
    Zero,
    /// The label has digits only.
    Decimal,
    /// The label has `0x` and hexadecimal digits only.
    Hexadecimal,
    Other,
    Dash,
}

/// Last character of a repository component, as far as it restricts the next character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Component {
    Empty,
    Letter,
    Dot,
    Dash,
    Underscore,
    TwoUnderscores,
}

impl Name {
    const START: Self = Self::Host(Host {
        label: Label::Empty,
        has_dot: false,
        v4: Some((0, 0, false)),
        words: 0b1_1111,
        length: 0,
    });

    fn is_complete(self) -> bool {
        matches!(
            self,
            Self::Repository {
                after: Component::Letter,
                needs_more: false,
            }
        )
    }

    fn step(self, next: u8) -> Option<Self> {
        let repository = |needs_more| Self::Repository {
            after: Component::Empty,
            needs_more,
        };
        match (self, next) {
            (Self::Host(host), b':') => {
                let is_hub = host.finished()? & HUB != 0;
                Some(Self::Port { value: 0, is_hub })
            }
            (Self::Host(host), b'/') => {
                let words = host.finished()?;
                let names_a_registry = host.has_dot || words != 0;
                names_a_registry.then(|| repository(words & HUB != 0))
            }
            (Self::Host(host), next) => host.step(next).map(Self::Host),
            (Self::AfterBracket, b':') => Some(Self::Port {
                value: 0,
                is_hub: false,
            }),
            (Self::AfterBracket, b'/') => Some(repository(false)),
            (Self::Port { value, is_hub }, b'/') if value > 0 => {
                Some(repository(is_hub && matches!(value, 80 | 443)))
            }
            (Self::Port { value, is_hub }, b'0'..=b'9') => {
                let value = value * 10 + u32::from(next - b'0');
                (1..=65_535)
                    .contains(&value)
                    .then_some(Self::Port { value, is_hub })
            }
            (Self::AfterBracket | Self::Port { .. }, _) => None,
            (Self::Repository { after, .. }, b'/') => {
                (after == Component::Letter).then(|| repository(false))
            }
            (Self::Repository { after, needs_more }, next) => {
                let after = after.step(next)?;
                Some(Self::Repository { after, needs_more })
            }
        }
    }
}

impl Host {
    fn step(self, next: u8) -> Option<Self> {
        let v4 = self.v4.and_then(|(octets, value, begun)| match next {
            b'0'..=b'9' if begun && value == 0 => None,
            b'0'..=b'9' => {
                let value = value * 10 + u16::from(next - b'0');
                (value <= 255).then_some((octets, value, true))
            }
            b'.' if begun && octets < 3 => Some((octets + 1, 0, false)),
            _ => None,
        });
        let fits = |word: &[u8]| word.get(self.length) == Some(&next);
        let words = (0..WORDS.len())
            .filter(|word| self.words & (1 << word) != 0 && fits(WORDS[*word]))
            .fold(0, |words, word| words | (1 << word));
        Some(Self {
            label: self.label.step(next)?,
            has_dot: self.has_dot || next == b'.',
            v4,
            words,
            length: if words == 0 { 0 } else { self.length + 1 },
        })
    }

    /// Returns the bits of the entries of `WORDS` that equal the host; `None` if the host is
    /// invalid.
    fn finished(self) -> Option<u8> {
        let is_host = match self.label {
            Label::Empty | Label::Dash | Label::Hexadecimal => false,
            Label::Zero | Label::Decimal => matches!(self.v4, Some((3, _, true))),
            Label::Other => true,
        };
        let is = |word: &usize| self.words & (1 << word) != 0 && WORDS[*word].len() == self.length;
        is_host.then(|| {
            (0..WORDS.len())
                .filter(is)
                .fold(0, |words, word| words | (1 << word))
        })
    }
}

impl Label {
    fn step(self, next: u8) -> Option<Self> {
        match (self, next) {
            (Self::Empty | Self::Dash, b'.') | (Self::Empty, b'-') => None,
            (_, b'.') => Some(Self::Empty),
            (_, b'-') => Some(Self::Dash),
            (Self::Empty, b'0') => Some(Self::Zero),
            (Self::Empty | Self::Zero | Self::Decimal, b'0'..=b'9') => Some(Self::Decimal),
            (Self::Zero, b'x') | (Self::Hexadecimal, b'0'..=b'9' | b'a'..=b'f') => {
                Some(Self::Hexadecimal)
            }
            (_, b'0'..=b'9' | b'a'..=b'z') => Some(Self::Other),
            _ => None,
        }
    }
}

impl Component {
    fn step(self, next: u8) -> Option<Self> {
        match (self, next) {
            (_, b'a'..=b'z' | b'0'..=b'9') => Some(Self::Letter),
            (Self::Letter, b'.') => Some(Self::Dot),
            (Self::Letter | Self::Dash, b'-') => Some(Self::Dash),
            (Self::Letter, b'_') => Some(Self::Underscore),
            (Self::Underscore, b'_') => Some(Self::TwoUnderscores),
            _ => None,
        }
    }
}
