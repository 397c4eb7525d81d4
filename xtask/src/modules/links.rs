//! Checks that relative links in pages lead to existing files and headings, and that links of the
//! book do not lead out of `docs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

/// Pages outside of the book. Their links are checked too.
const OTHERS: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "fuzz/README.md",
];

/// Returns the broken links of `pages` and of the pages outside of the book.
pub(super) fn check(root: &Path, mut pages: Vec<PathBuf>) -> Result<Vec<String>> {
    pages.extend(OTHERS.iter().map(|page| root.join(page)));
    let book = root.join("docs");
    let mut anchors = BTreeMap::new();
    let mut wrong = Vec::new();
    for page in &pages {
        let text = fs_err::read_to_string(page)?;
        let shown = page.strip_prefix(root).unwrap_or(page).display();
        for (number, target) in links(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = resolved(page, path);
            let problem = if !file.exists() {
                "leads to no file"
            } else if page.starts_with(&book) && !file.starts_with(&book) {
                "leads out of the book"
            } else if !anchor.is_empty() && !has_anchor(&mut anchors, &file, anchor)? {
                "leads to no heading"
            } else {
                continue;
            };
            wrong.push(format!("{shown}:{number}: `{target}` {problem}"));
        }
    }
    Ok(wrong)
}

/// Returns the relative targets of all links outside of code blocks, with their line numbers.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                found.push((number, target));
            }
        }
    }
    found
}

/// Returns the lines outside of code blocks, with their line numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// Returns the file that `path` on `page` leads to; an empty path leads to `page` itself.
fn resolved(page: &Path, path: &str) -> PathBuf {
    if path.is_empty() {
        return page.to_path_buf();
    }
    let mut file = page.parent().unwrap_or(page).to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                file.pop();
            }
            Component::CurDir => {}
            other => file.push(other),
        }
    }
    file
}

fn has_anchor(
    known: &mut BTreeMap<PathBuf, BTreeSet<String>>,
    file: &Path,
    anchor: &str,
) -> Result<bool> {
    if !known.contains_key(file) {
        let text = fs_err::read_to_string(file)?;
        known.insert(file.to_path_buf(), headings(&text));
    }
    Ok(known[file].contains(anchor))
}

/// Returns the anchors of all headings, in the form of GitHub and mdBook: repeated anchors get a
/// number.
fn headings(text: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim());
        let count = counts.entry(slug.clone()).or_insert(0_usize);
        found.insert(match *count {
            0 => slug,
            number => format!("{slug}-{number}"),
        });
        *count += 1;
    }
    found
}

fn slug(title: &str) -> String {
    let kept = title.to_lowercase();
    kept.chars()
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_links_to_missing_files_headings_and_out_of_the_book() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for page in OTHERS {
            fs_err::create_dir_all(root.join(page).parent().unwrap()).unwrap();
            fs_err::write(root.join(page), "[book](docs/a.md#steps)").unwrap();
        }
        fs_err::write(root.join("fuzz/README.md"), "").unwrap();
        fs_err::create_dir_all(root.join("docs/b")).unwrap();
        let text = "# A `b`: c\n## Steps\n## Steps\n[x](gone.md) [y](b/c.md#none)\n```\n[z](gone.md)\n```\n[w](../README.md)\n[v](#steps-1) [u](https://example.com/gone) [t](#a-b-c)\n";
        fs_err::write(root.join("docs/a.md"), text).unwrap();
        fs_err::write(root.join("docs/b/c.md"), "[back](../a.md#steps)").unwrap();
        let pages = vec![root.join("docs/a.md"), root.join("docs/b/c.md")];
        assert_eq!(
            check(root, pages).unwrap(),
            [
                "docs/a.md:4: `gone.md` leads to no file",
                "docs/a.md:4: `b/c.md#none` leads to no heading",
                "docs/a.md:8: `../README.md` leads out of the book",
            ]
        );
    }
}
