//! Rules of other projects: tools of `e2e/tools` call the code of kstatus, Argo CD and Helm, and
//! the scenarios compare the results with the results of this project. A difference must be
//! documented, and a documented difference must exist.

use e2e::host::command::Command;
use e2e::{Tool, tools};
use serde_json::Value;

mod exceptions;
mod health;
mod matrix;
mod versions;

/// Runs `tool` with `input`, which is JSON, and returns its results.
async fn verdicts(tool: Tool, input: String) -> Vec<Value> {
    let program = tools::path_async(tool, None).await.unwrap();
    let output = Command::new(program).stdin(input).output();
    let text = output.await.unwrap().success().unwrap();
    serde_json::from_str(&text).unwrap()
}
