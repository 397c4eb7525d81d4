//! Duration of `build` for 500 built-in objects, with and without checks against their schemas. The
//! baseline is a package for a Kubernetes version that has no schemas in the table.

use std::fmt::Write as _;

use anyhow::Result;
use e2e::programs;

use super::run;
use super::table::Table;

/// Number of objects: pairs of a Deployment and a Service.
const OBJECTS: usize = 500;
const ROUNDS: usize = 15;

/// Title of each case, and the Kubernetes range of its package. The title names the versions of the
/// schema table that are in this range.
const CASES: &[(&str, &str)] = &[
    ("no version of the table", "<1.30"),
    ("the newest version", ">=1.36 <1.37"),
    ("all four versions", ">=1.33 <1.37"),
];

pub(super) async fn measure() -> Result<Table> {
    let programs = programs::get().await?;
    let home = tempfile::tempdir()?;
    for (index, (_, supported)) in CASES.iter().enumerate() {
        let folder = home.path().join(format!("case{index}"));
        fs_err::create_dir_all(folder.join("manifests"))?;
        let package = format!(
            "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: many\nversion: 1.0.0\nformat: plain+v0\nkubernetes: {{supported: \"{supported}\"}}\n"
        );
        fs_err::write(folder.join("bundle.yaml"), package)?;
        fs_err::write(folder.join("manifests/all.yaml"), objects())?;
    }
    let mut seconds = vec![Vec::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (index, times) in seconds.iter_mut().enumerate() {
            let line = format!(
                "build {}/case{index} --dry-run --no-provenance",
                home.path().display()
            );
            times.push(run::cost(run::command(&programs.plugin, home.path(), &line))?.seconds);
        }
    }
    let medians: Vec<f64> = seconds
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        })
        .collect();
    let mut table = Table::new(&["schemas of", "ms", "additional time", "aim"]);
    for ((name, _), median) in CASES.iter().zip(&medians) {
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median * 1_000.0),
            format!("{:.0} ms", (median - medians[0]) * 1_000.0),
            "100 ms".to_owned(),
        ]);
    }
    Ok(table)
}

fn objects() -> String {
    let mut text = String::new();
    for number in 0..OBJECTS / 2 {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a{number}, namespace: default, labels: {{app: a{number}}}}}\n\
             spec:\n  replicas: 2\n  selector: {{matchLabels: {{app: a{number}}}}}\n  template:\n    metadata: {{labels: {{app: a{number}}}}}\n    spec:\n\
             \x20     serviceAccountName: a\n      securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}\n      containers:\n\
             \x20     - name: a\n        image: registry.example.com/a:1.{number}.0\n        args: [--port=8080, --verbose]\n\
             \x20       env: [{{name: A, value: a}}, {{name: B, valueFrom: {{secretKeyRef: {{name: a, key: b}}}}}}]\n\
             \x20       ports: [{{name: http, containerPort: 8080}}, {{name: metrics, containerPort: 9090}}]\n\
             \x20       resources: {{requests: {{cpu: 100m, memory: 64Mi}}, limits: {{memory: 128Mi}}}}\n\
             \x20       readinessProbe: {{httpGet: {{path: /ready, port: http}}, periodSeconds: 5}}\n\
             \x20       volumeMounts: [{{name: data, mountPath: /data}}]\n\
             \x20     volumes: [{{name: data, emptyDir: {{}}}}]\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {{name: a{number}, namespace: default}}\n\
             spec: {{selector: {{app: a{number}}}, ports: [{{name: http, port: 80, targetPort: http}}]}}\n---\n"
        );
    }
    text
}
