//! The plugin as a program for another platform. Zig is the C compiler and the linker for all
//! platforms. One package of the Python package index contains Zig, the C libraries of Linux and
//! Windows, and the interface of macOS' system library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{DistPlatform, RuntimeLicense, frameworks, program};
use crate::image::{add_target, path_flags};
use crate::programs;
use crate::tools::published::zig_toolchain;

/// Name of the package and of the program.
pub(super) const PACKAGE: &str = "kubectl-bundle";

/// Folder of the build, from the root of the workspace.
const TARGET_FOLDER: &str = "target/dist";

/// Program that was built for a platform. The build has checked its file type and its libraries.
#[derive(Debug, Clone)]
pub struct BuiltProgram {
    /// Platform of the program.
    pub platform: DistPlatform,
    /// Path of the program.
    pub path: PathBuf,
    /// Licences of the libraries that the program is linked from, other than Rust packages.
    pub runtime: Vec<RuntimeLicense>,
}

/// Builds the plugin for `platform` with a profile of cargo.
pub fn build_plugin(root: &Path, platform: DistPlatform, profile: &str) -> Result<BuiltProgram> {
    let zig = zig_toolchain()?;
    let target = platform.target();
    add_target(target)?;
    let mut flags = path_flags(root);
    if platform.is_macos() {
        let stubs = root.join(TARGET_FOLDER).join("frameworks");
        frameworks::write_stubs(root, target, &stubs)?;
        flags.push(format!("-Lframework={}", stubs.display()));
    }
    eprintln!("dist: building {PACKAGE} for {platform} ({profile}) with zig");
    let output = Command::new(&zig.cargo_zigbuild)
        .current_dir(root)
        .args(["zigbuild", "--locked", "--package", PACKAGE])
        .args(["--profile", profile, "--target", target])
        // A separate folder, so that other builds do not wait for the locks of this build.
        .arg("--target-dir")
        .arg(root.join(TARGET_FOLDER))
        .arg("--message-format=json-render-diagnostics")
        .env("CARGO_ZIGBUILD_ZIG_PATH", &zig.zig)
        // `SDKROOT` can name Apple's SDK. Files of this SDK must not be part of a program.
        .env_remove("SDKROOT")
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo-zigbuild")?;
    if !output.status.success() {
        bail!(
            "cargo could not build {PACKAGE} for {target}; its output is above\n\
             hint: build on a machine of this platform, or omit it from --platform{}",
            if platform.is_macos() {
                ". If the linker reports missing symbols of a framework, add the crate that \
                declares them to e2e/src/dist/frameworks.rs"
            } else {
                ""
            }
        );
    }
    let path = programs::executable(&String::from_utf8_lossy(&output.stdout), PACKAGE)?;
    program::check(&fs_err::read(&path)?, platform)?;
    let mut runtime = vec![RuntimeLicense {
        name: "compiler-rt, libunwind".to_owned(),
        file: zig.library("libunwind/LICENSE.TXT"),
    }];
    match platform.os() {
        "linux" => runtime.push(RuntimeLicense {
            name: "musl".to_owned(),
            file: zig.library("libc/musl/COPYRIGHT"),
        }),
        "windows" => runtime.push(RuntimeLicense {
            name: "mingw-w64 runtime".to_owned(),
            file: zig.library("libc/mingw/COPYING"),
        }),
        // A program for macOS contains no C library: it uses only libraries of macOS itself.
        _ => {}
    }
    Ok(BuiltProgram {
        platform,
        path,
        runtime,
    })
}
