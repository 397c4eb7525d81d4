//! Stubs of the two frameworks of macOS that the program uses: lists of symbol names, with which a
//! linker on another system records that the symbols come from the framework. The `-sys` crates
//! declare these names. No part of this module comes from Apple's SDK.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};

use super::third_party::package_folders;

/// Each framework, and the crate that declares its symbols.
const FRAMEWORKS: [(&str, &str); 2] = [
    ("CoreFoundation", "core-foundation-sys"),
    ("Security", "security-framework-sys"),
];

/// Writes the stubs into `folder`, a search path for frameworks.
pub(super) fn write_stubs(root: &Path, target: &str, folder: &Path) -> Result<()> {
    let crates = package_folders(root, target)?;
    for (framework, declares) in FRAMEWORKS {
        let mut symbols = BTreeSet::new();
        for ((name, _), folder) in &crates {
            if name == declares {
                for file in fs_err::read_dir(folder.join("src"))? {
                    collect_symbols(&fs_err::read_to_string(file?.path())?, &mut symbols);
                }
            }
        }
        ensure!(
            !symbols.is_empty(),
            "{declares}, which declares the symbols of {framework}, is not in the workspace\n\
             hint: remove the framework from e2e/src/dist/frameworks.rs if the program does not use it"
        );
        let home = folder.join(format!("{framework}.framework"));
        fs_err::create_dir_all(&home)?;
        fs_err::write(
            home.join(format!("{framework}.tbd")),
            text_stub(framework, &symbols),
        )?;
    }
    Ok(())
}

/// Adds the names of the functions and variables that a source file declares. Functions and
/// variables that the file defines are not imported, so their names have no effect.
fn collect_symbols(source: &str, symbols: &mut BTreeSet<String>) {
    for line in source.lines().map(str::trim_start) {
        let declared = ["pub fn ", "pub static "]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix));
        let renamed = line
            .split_once("link_name = \"")
            .filter(|_| line.starts_with("#["))
            .map(|(_, rest)| rest);
        for text in [declared, renamed].into_iter().flatten() {
            let end = text
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$')
                .unwrap_or(text.len());
            symbols.insert(format!("_{}", &text[..end]));
        }
    }
}

/// Returns the text-based stub (format 4 of LLVM's TextAPI) of a framework.
fn text_stub(framework: &str, symbols: &BTreeSet<String>) -> String {
    let symbols: Vec<String> = symbols.iter().map(|name| format!("'{name}'")).collect();
    format!(
        "--- !tapi-tbd\n\
         tbd-version: 4\n\
         targets: [ x86_64-macos, arm64-macos ]\n\
         install-name: '/System/Library/Frameworks/{framework}.framework/Versions/A/{framework}'\n\
         exports:\n\
         \x20 - targets: [ x86_64-macos, arm64-macos ]\n\
         \x20   symbols: [ {} ]\n\
         ...\n",
        symbols.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_lists_declared_and_renamed_symbols() {
        let source = "extern \"C\" {\n    pub static kCFNull: CFNullRef;\n    pub fn CFRelease(cf: CFTypeRef);\n\
                      #[cfg_attr(target_arch = \"aarch64\", link_name = \"SecCopy$LEGACYMAC\")]\n    pub fn SecCopy(\n";
        let mut symbols = BTreeSet::new();
        collect_symbols(source, &mut symbols);
        let stub = text_stub("Security", &symbols);
        assert!(
            stub.contains(
                "symbols: [ '_CFRelease', '_SecCopy', '_SecCopy$LEGACYMAC', '_kCFNull' ]\n"
            ),
            "{stub}"
        );
        assert!(
            stub.contains("'/System/Library/Frameworks/Security.framework/Versions/A/Security'\n"),
            "{stub}"
        );
    }
}
