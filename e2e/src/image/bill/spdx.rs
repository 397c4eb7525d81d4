//! SPDX 2.3, JSON.

use serde_json::{Value, json};

use super::{BillOfMaterials, LinkedPackage};

const DOCUMENT: &str = "SPDXRef-DOCUMENT";
const UNKNOWN: &str = "NOASSERTION";

impl BillOfMaterials {
    /// Returns the bill of materials as an SPDX 2.3 document. `created` is its time (UTC,
    /// `2026-01-01T00:00:00Z`); `subject` is the digest of the image in hexadecimal, which makes
    /// the document's name unique.
    pub fn to_spdx(&self, created: &str, subject: &str) -> Value {
        let program = &self.packages[0];
        let name = format!("{}-{}", program.name, self.platform.architecture());
        let mut relationships = vec![relationship(DOCUMENT, "DESCRIBES", &identifier(program))];
        for package in &self.packages {
            for index in &package.dependencies {
                relationships.push(relationship(
                    &identifier(package),
                    "DEPENDS_ON",
                    &identifier(&self.packages[*index]),
                ));
            }
        }
        json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": DOCUMENT,
            "name": name,
            "documentNamespace": format!("https://spdx.org/spdxdocs/{name}-{subject}"),
            "creationInfo": {
                "created": created,
                "creators": [format!("Tool: cargo-xtask-image-{}", env!("CARGO_PKG_VERSION"))],
            },
            "packages": self.packages.iter().map(description).collect::<Vec<_>>(),
            "relationships": relationships,
        })
    }
}

fn relationship(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

/// Returns the identifier of a package: letters, digits, `.` and `-` (SPDX 2.3, 7.2).
fn identifier(package: &LinkedPackage) -> String {
    let version = package.version.as_deref().unwrap_or("unknown");
    let name: String = format!("{}-{version}", package.name)
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => c,
            _ => '-',
        })
        .collect();
    format!("SPDXRef-Package-{name}")
}

fn description(package: &LinkedPackage) -> Value {
    let mut description = json!({
        "SPDXID": identifier(package),
        "name": package.name,
        "downloadLocation": package.repository.as_deref().unwrap_or(UNKNOWN),
        "filesAnalyzed": false,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": package.licence.as_deref().unwrap_or(UNKNOWN),
        "copyrightText": UNKNOWN,
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": package.purl(),
        }],
    });
    if let Some(version) = &package.version {
        description["versionInfo"] = json!(version);
    }
    if let Some(sha256) = &package.sha256 {
        description["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": sha256 }]);
    }
    description
}

#[cfg(test)]
mod tests {
    use super::super::tests::bill;
    use super::*;

    #[test]
    fn document_describes_the_program_and_its_packages() {
        let document = bill().to_spdx("2026-01-01T00:00:00Z", "0123");
        assert_eq!(
            document["documentNamespace"],
            "https://spdx.org/spdxdocs/web-amd64-0123"
        );
        let identifiers: Vec<_> = document["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["SPDXID"].as_str().unwrap())
            .collect();
        assert_eq!(
            identifiers,
            [
                "SPDXRef-Package-web-0.1.0",
                "SPDXRef-Package-a-1.2.3",
                "SPDXRef-Package-c-0.4.0-5",
                "SPDXRef-Package-b-2.0.0"
            ]
        );
        let relationships = document["relationships"].as_array().unwrap();
        assert_eq!(relationships.len(), 5);
        assert_eq!(
            relationships[0],
            relationship(DOCUMENT, "DESCRIBES", "SPDXRef-Package-web-0.1.0")
        );
        assert_eq!(document["packages"][3]["licenseDeclared"], UNKNOWN);
    }
}
