//! Checks of a program for a platform, which is usually not the platform of this machine: file
//! type, architecture, imported libraries.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use object::read::macho::MachOFile64;
use object::read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _, PeFile64};
use object::{Architecture, Endianness, FileKind, Object as _};

use super::DistPlatform;
use crate::programs::has_interpreter;

/// Folders of the libraries that every macOS installation has.
const MACOS_LIBRARIES: [&str; 2] = ["/usr/lib/", "/System/Library/Frameworks/"];
/// Libraries that every supported Windows version has, without `.dll`. Windows also has libraries
/// whose names begin with [`WINDOWS_API_SET`].
const WINDOWS_LIBRARIES: [&str; 16] = [
    "advapi32",
    "bcrypt",
    "bcryptprimitives",
    "combase",
    "crypt32",
    "iphlpapi",
    "kernel32",
    "msvcrt",
    "ncrypt",
    "ntdll",
    "ole32",
    "secur32",
    "shell32",
    "user32",
    "userenv",
    "ws2_32",
];
const WINDOWS_API_SET: &str = "api-ms-win-";

/// Fails if `program` was built for another platform, or needs a library that is not part of the
/// platform.
pub(super) fn check(program: &[u8], platform: DistPlatform) -> Result<()> {
    let expected = match platform.os() {
        "linux" => FileKind::Elf64,
        "darwin" => FileKind::MachO64,
        _ => FileKind::Pe64,
    };
    let kind = FileKind::parse(program).context("the program has an unknown file type")?;
    ensure!(
        kind == expected,
        "the program for {platform} is of the type {kind:?}, not {expected:?}"
    );
    let file = object::File::parse(program).context("the program cannot be parsed")?;
    let architecture = match platform.architecture() {
        "amd64" => Architecture::X86_64,
        _ => Architecture::Aarch64,
    };
    ensure!(
        file.architecture() == architecture,
        "the program for {platform} has the architecture {:?}",
        file.architecture()
    );
    match platform.os() {
        "linux" => ensure!(
            !has_interpreter(program)?,
            "the program for {platform} is linked dynamically"
        ),
        "darwin" => check_macos(program, &libraries(&file)?)?,
        _ => check_windows(program, &libraries(&file)?)?,
    }
    Ok(())
}

/// Returns the names of the libraries from which the program imports symbols.
fn libraries(file: &object::File<'_>) -> Result<BTreeSet<String>> {
    let imports = file.imports().context("the imports cannot be parsed")?;
    Ok(imports
        .iter()
        .map(|import| String::from_utf8_lossy(import.library()).into_owned())
        .collect())
}

/// Requires a signature, because macOS on ARM does not start unsigned programs. Requires that all
/// libraries are part of macOS.
fn check_macos(program: &[u8], libraries: &BTreeSet<String>) -> Result<()> {
    let file: MachOFile64<'_, Endianness> = MachOFile64::parse(program)?;
    let header = file.macho_header();
    ensure!(
        header.filetype.get(file.endian()) == object::macho::MH_EXECUTE,
        "the file for macOS is no program"
    );
    let mut commands = file.macho_load_commands()?;
    let mut is_signed = false;
    while let Some(command) = commands.next()? {
        is_signed |= command.cmd() == object::macho::LC_CODE_SIGNATURE;
    }
    ensure!(is_signed, "the program for macOS has no code signature");
    require_system_libraries(libraries, |name| {
        MACOS_LIBRARIES
            .iter()
            .any(|folder| name.starts_with(folder))
    })
}

/// Requires a console program, and that all libraries are part of Windows.
fn check_windows(program: &[u8], libraries: &BTreeSet<String>) -> Result<()> {
    let file = PeFile64::parse(program)?;
    let subsystem = file.nt_headers().optional_header().subsystem();
    ensure!(
        subsystem == object::pe::IMAGE_SUBSYSTEM_WINDOWS_CUI,
        "the program for Windows has the subsystem {subsystem}, not that of consoles"
    );
    require_system_libraries(libraries, |name| {
        let name = name.to_lowercase();
        let name = name.strip_suffix(".dll").unwrap_or(&name);
        WINDOWS_LIBRARIES.contains(&name) || name.starts_with(WINDOWS_API_SET)
    })
}

fn require_system_libraries(
    libraries: &BTreeSet<String>,
    is_of_system: impl Fn(&str) -> bool,
) -> Result<()> {
    ensure!(!libraries.is_empty(), "the program imports no library");
    let others: Vec<&str> = libraries
        .iter()
        .map(String::as_str)
        .filter(|name| !is_of_system(name))
        .collect();
    if !others.is_empty() {
        bail!(
            "the program needs libraries that are not part of the system: {}",
            others.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn program_of_another_platform_is_rejected() {
        let this = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        let here = DistPlatform::of_this_machine().unwrap();
        let why = |platform| check(&this, platform).unwrap_err().to_string();
        assert_eq!(
            why(DistPlatform::WindowsArm64),
            "the program for windows/arm64 is of the type Elf64, not Pe64"
        );
        assert_eq!(
            why(DistPlatform::DarwinAmd64),
            "the program for darwin/amd64 is of the type Elf64, not MachO64"
        );
        assert_eq!(
            why(here),
            format!("the program for {here} is linked dynamically")
        );
        let other = match here {
            DistPlatform::LinuxAmd64 => DistPlatform::LinuxArm64,
            _ => DistPlatform::LinuxAmd64,
        };
        let text = why(other);
        assert!(text.contains("has the architecture"), "{text}");
        assert!(check(b"#!/bin/sh\n", here).is_err());
    }

    #[test]
    fn libraries_of_compilers_are_rejected() {
        let is_of_system = |name: &str| name == "KERNEL32.dll";
        assert!(require_system_libraries(&names(&["KERNEL32.dll"]), is_of_system).is_ok());
        let libraries = names(&["KERNEL32.dll", "libunwind.dll"]);
        let error = require_system_libraries(&libraries, is_of_system).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the program needs libraries that are not part of the system: libunwind.dll"
        );
        assert!(require_system_libraries(&BTreeSet::new(), is_of_system).is_err());
    }
}
