//! `__man`: writes a man page for each verb, from the same definitions as `--help`.

mod arguments;

use std::path::PathBuf;

use clap_mangen::roff::{Roff, roman};

use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Name of the program, with which the names of all pages begin.
const NAME: &str = "kubectl-bundle";

/// Renders one section of a page.
type RenderSection = fn(&clap_mangen::Man, &mut dyn std::io::Write) -> std::io::Result<()>;

/// Settings of `__man`.
pub(crate) struct Man {
    /// clap's command.
    pub(crate) root: clap::Command,
    /// Folder of the pages.
    pub(crate) to: PathBuf,
}

impl Man {
    /// Writes the pages, and prints their paths.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let pages: Vec<_> = pages(self.root)
            .into_iter()
            .map(|(name, page)| (self.to.join(name), page))
            .collect();
        files::create_all(&pages, false)?;
        for (path, _) in &pages {
            ui.data(path.display())?;
        }
        Ok(())
    }
}

/// Returns the name and the text of each page. The page of `root` is first. The pages of the
/// visible verbs follow.
fn pages(root: clap::Command) -> Vec<(String, Vec<u8>)> {
    // The pages of `help` would repeat all other pages.
    let mut root = root.disable_help_subcommand(true).display_name(NAME);
    root.build();
    let mut pages = Vec::new();
    let mut waiting = vec![root];
    while let Some(command) = waiting.pop() {
        let verbs = command.get_subcommands();
        let mut verbs: Vec<_> = verbs.filter(|verb| !verb.is_hide_set()).cloned().collect();
        pages.push(page(command, !verbs.is_empty()));
        verbs.reverse();
        waiting.append(&mut verbs);
    }
    pages
}

fn page(command: clap::Command, has_verbs: bool) -> (String, Vec<u8>) {
    let notes = command
        .get_after_long_help()
        .or_else(|| command.get_after_help())
        .map(ToString::to_string);
    let man =
        clap_mangen::Man::new(command).source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")));
    let name = man.get_filename();
    let mut page = Vec::new();
    let mut sections: Vec<RenderSection> = vec![
        clap_mangen::Man::render_title,
        clap_mangen::Man::render_name_section,
        clap_mangen::Man::render_synopsis_section,
        clap_mangen::Man::render_description_section,
        clap_mangen::Man::render_options_section,
    ];
    if has_verbs {
        sections.push(clap_mangen::Man::render_subcommands_section);
    }
    for render in sections {
        // Writing to memory does not fail.
        drop(render(&man, &mut page));
    }
    if let Some(notes) = notes {
        drop(section_of(&notes).to_writer(&mut page));
    }
    (name, page)
}

/// Returns the section for the text after the options. The first line of the text is the heading.
/// The following lines keep their line breaks.
fn section_of(notes: &str) -> Roff {
    let (heading, body) = notes.split_once('\n').unwrap_or((notes, ""));
    let mut roff = Roff::new();
    roff.control(
        "SH",
        [heading.trim_end_matches(':').to_uppercase().as_str()],
    );
    roff.control("nf", []);
    for line in body.lines() {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("fi", []);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(name: &str) -> String {
        let mut pages = pages(crate::cli::command()).into_iter();
        let found = pages.find(|(page, _)| page == name);
        String::from_utf8(found.unwrap_or_else(|| panic!("no page {name}")).1).unwrap()
    }

    #[test]
    fn each_visible_verb_has_a_page() {
        let names: Vec<String> = pages(crate::cli::command())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names[0], "kubectl-bundle.1");
        for verb in crate::cli::command().get_subcommands() {
            let page = format!("kubectl-bundle-{}.1", verb.get_name());
            assert_eq!(names.contains(&page), !verb.is_hide_set(), "{page}");
        }
        for nested in ["keys-generate", "completion-install"] {
            assert!(
                names.contains(&format!("kubectl-bundle-{nested}.1")),
                "{names:?}"
            );
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    }

    #[test]
    fn page_has_the_examples_of_the_help_text_line_by_line() {
        let page = page_of("kubectl-bundle-sign.1");
        assert!(page.starts_with(".ie"), "{page}");
        let examples = page.split_once(".SH EXAMPLES\n.nf\n").unwrap().1;
        assert!(
            examples.starts_with("kubectl bundle sign registry.example.com/team/web:1.4.0"),
            "{examples}"
        );
        assert!(page.contains("\n.SH OPTIONS\n"), "{page}");
        assert!(page_of("kubectl-bundle.1").contains(".SH \"EXIT CODES\"\n.nf\n"));
    }
}
