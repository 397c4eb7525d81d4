//! Parser of Rust source: declared modules, names bound by `use`, and paths. The parser works on
//! tokens, so that paths in macros are included. Items with `#[cfg(test)]` are excluded.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module in a file or in braces.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// Names of the modules in other files: `mod name;`.
    pub(super) files: Vec<String>,
    /// Names and content of the modules in braces: `mod name { … }`.
    pub(super) inline: Vec<(String, Declarations)>,
    /// Names bound by `use`, with their paths.
    pub(super) bindings: Vec<(String, Vec<String>)>,
    /// All paths: paths in `use`, and paths that begin with `crate`, `self` or `super`.
    pub(super) paths: Vec<Vec<String>>,
}

/// Parses the source of one file. Returns an error if the source is not valid Rust.
pub(super) fn read(source: &str) -> Result<Declarations> {
    let tokens: TokenStream = source
        .parse()
        .map_err(|error| anyhow!("not Rust source: {error}"))?;
    let mut declarations = Declarations::default();
    declarations.read(tokens);
    Ok(declarations)
}

impl Declarations {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' && is_test_only(&tokens, at) => {
                    end_of_item(&tokens, at + 2)
                }
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    at + 1
                }
                TokenTree::Ident(word) if word == "mod" => self.module(&tokens, at),
                TokenTree::Ident(word) if word == "use" && !is_mark(&tokens, at + 1, '<') => {
                    let end = (at..tokens.len())
                        .find(|&index| is_mark(&tokens, index, ';'))
                        .unwrap_or(tokens.len());
                    self.import(&[], &tokens[at + 1..end]);
                    end + 1
                }
                TokenTree::Ident(word)
                    if ["crate", "self", "super"].iter().any(|start| word == start)
                        && is_separator(&tokens, at + 1) =>
                {
                    let (path, end) = path(&tokens, at);
                    self.paths.push(path);
                    end
                }
                _ => at + 1,
            };
        }
    }

    /// Parses `mod name;` or `mod name { … }` at `at`. Returns the index after the module.
    fn module(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            return at + 1;
        };
        match tokens.get(at + 2) {
            Some(TokenTree::Punct(mark)) if mark.as_char() == ';' => {
                self.files.push(name.to_string());
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let mut inner = Self::default();
                inner.read(group.stream());
                self.inline.push((name.to_string(), inner));
            }
            _ => return at + 1,
        }
        at + 3
    }

    /// Parses one `use` tree below `prefix`. Paths that begin with `::` belong to other crates.
    fn import(&mut self, prefix: &[String], tokens: &[TokenTree]) {
        for tree in
            tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
        {
            if is_separator(tree, 0) && prefix.is_empty() {
                continue;
            }
            let (mut names, end) = path(tree, 0);
            let mut whole = prefix.to_vec();
            let is_self = names.len() == 1 && names[0] == "self" && !prefix.is_empty();
            if is_self {
                names.clear();
            }
            whole.append(&mut names);
            match tree.get(end) {
                Some(TokenTree::Group(group)) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.import(&whole, &inner);
                }
                Some(TokenTree::Ident(word)) if word == "as" => {
                    if let Some(TokenTree::Ident(name)) = tree.get(end + 1) {
                        self.bindings.push((name.to_string(), whole.clone()));
                    }
                    self.paths.push(whole);
                }
                // The names that a glob binds are unknown.
                Some(_) => self.paths.push(whole),
                None => {
                    if let Some(name) = whole.last() {
                        self.bindings.push((name.clone(), whole.clone()));
                        self.paths.push(whole);
                    }
                }
            }
        }
    }
}

/// Returns the names of the path at `at`, and the index after the path. Before a group or a glob,
/// the path ends with its last `::`.
fn path(tokens: &[TokenTree], at: usize) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    let mut at = at;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.to_string().trim_start_matches("r#").to_owned());
        at += 1;
        if !is_separator(tokens, at) {
            break;
        }
        at += 2;
    }
    (names, at)
}

pub(super) fn is_mark(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == wanted)
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_mark(tokens, at, ':') && is_mark(tokens, at + 1, ':')
}

pub(super) fn is_test_only(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
        if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// Returns the index after the item that begins at `at`, including its other attributes.
pub(super) fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while is_mark(tokens, at, '#') {
        at += 2;
    }
    let is_import = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "use");
    let begins = at;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' => break,
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace
                    && !tokens[begins..at].iter().any(is_import) =>
            {
                break;
            }
            _ => {}
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        let mut paths: Vec<_> = read(source)
            .unwrap()
            .paths
            .iter()
            .map(|path| path.join("::"))
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn use_trees_give_each_path_once() {
        assert_eq!(
            paths("use crate::{a::{self, B as C, d::*}, e};"),
            ["crate::a", "crate::a::B", "crate::a::d", "crate::e"]
        );
    }

    #[test]
    fn paths_in_expressions_types_and_macros_count() {
        assert_eq!(
            paths("fn f(x: super::a::B) { println!(\"{}\", crate::c::d(x)); }"),
            ["crate::c::d", "super::a::B"]
        );
    }

    #[test]
    fn test_only_items_do_not_count() {
        assert_eq!(
            paths(
                "#[cfg(test)] use crate::{a, b}; use crate::c; #[cfg(test)] #[allow(x)] mod tests { use crate::d; } #[cfg(test)] mod more; use crate::e;"
            ),
            ["crate::c", "crate::e"]
        );
    }

    #[test]
    fn modules_are_read_as_files_and_as_blocks() {
        let found = read("pub(crate) mod a; mod b { use super::c; }").unwrap();
        assert_eq!(found.files, ["a"]);
        assert_eq!(found.inline[0].0, "b");
        assert_eq!(found.inline[0].1.paths, [["super", "c"]]);
    }

    #[test]
    fn captured_lifetimes_are_no_imports() {
        assert!(paths("fn f() -> impl A + use<'_> { g() }").is_empty());
    }
}
