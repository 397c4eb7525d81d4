//! Kubeconfig files: one cluster, one user, one context. The files are written as JSON, which is
//! valid YAML.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde_json::{Value, json};

use crate::certs::Identity;

/// Credential of a user.
pub(crate) enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Returns the `cluster` entry of a kubeconfig for an API server.
pub(crate) fn endpoint(server: &str, ca: &Path) -> Result<Value> {
    Ok(json!({ "server": server, "certificate-authority-data": inline(ca)? }))
}

/// Writes `folder/NAME.kubeconfig`. The file contains the credentials instead of paths, so that the
/// file can be copied.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    endpoint: &Value,
    credential: &Credential<'_>,
) -> Result<PathBuf> {
    let user = match credential {
        Credential::Certificate(identity) => json!({
            "client-certificate-data": inline(&identity.certificate)?,
            "client-key-data": inline(&identity.key)?,
        }),
        Credential::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "e2e", "cluster": endpoint }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": name } }],
        "current-context": "e2e",
    });
    let text = serde_json::to_string_pretty(&config).context("cannot write a kubeconfig")?;
    store(folder, name, &text)
}

/// Writes `text` to `folder/NAME.kubeconfig` with mode 0600.
pub(crate) fn store(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.kubeconfig"));
    fs_err::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?
        .write_all(text.as_bytes())?;
    Ok(path)
}

fn inline(path: &Path) -> Result<Value> {
    Ok(Value::String(STANDARD.encode(fs_err::read(path)?)))
}
