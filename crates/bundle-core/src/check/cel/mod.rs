//! Compiles CEL rules and evaluates them for an object. If a rule needs a function that this
//! evaluator does not support, the rule is reported and not evaluated.

mod convert;
mod scan;

use std::{collections::HashMap, sync::Arc};

pub(super) use convert::escaped;
use kube_cel::{
    KubeCelExt as _,
    cel::{Context, ExecutionError, Program, Value as Cel},
};
use serde_json::Value;

use crate::structural::{Problem, child, flag, item, of_field, text};

/// Maximum length of a rule, in bytes.
const LENGTH: usize = 8 * 1024;
/// Maximum nesting of brackets in a rule. The parser is recursive.
const BRACKETS: usize = 64;
/// Stack size of the parser, in bytes.
const STACK: usize = 64 << 20;
/// Maximum estimated number of evaluations of the innermost expression of a rule. The API server
/// has its own cost limit.
const COST: u128 = 20_000_000;

/// Functions that parse text, and fail for invalid text.
const READERS: &[&str] = &[
    "cidr",
    "double",
    "duration",
    "int",
    "ip",
    "quantity",
    "semver",
    "timestamp",
    "uint",
    "url",
];

/// Result of compiling a rule.
pub(super) enum Compiled {
    /// The rule can be evaluated.
    Ready(Program, scan::ExpressionAnalysis),
    /// The API server rejects the rule.
    Bad(String),
    /// This program cannot compile the rule. The API server may accept the rule.
    Unknown(String),
}

/// Cache of compiled rules. The key is the text of the rule.
pub(super) struct Rules {
    context: Context<'static>,
    compiled: HashMap<String, Compiled>,
}

impl Rules {
    pub(super) fn new() -> Self {
        Self {
            context: Context::default().with_all(),
            compiled: HashMap::new(),
        }
    }

    /// Compiles a rule or a message expression.
    pub(super) fn compile(&mut self, rule: &str) -> &Compiled {
        self.compiled
            .entry(rule.to_owned())
            .or_insert_with(|| compile(rule))
    }

    /// Evaluates the rules of `schema` for an object that is being created. Adds a problem for each
    /// rule that the object violates.
    pub(super) fn evaluate(
        &mut self,
        schema: &Value,
        value: &Value,
        path: &str,
        problems: &mut Vec<Problem>,
    ) {
        if value.is_null() {
            return;
        }
        if let Some(Value::Array(rules)) = schema.get("x-kubernetes-validations")
            && !rules.is_empty()
        {
            let this = convert::value(schema, value);
            let size = convert::size(value);
            for rule in rules {
                problems.extend(self.one(rule, &this, size, path));
            }
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(field) = of_field(schema, key) {
                        self.evaluate(field, value, &child(path, key), problems);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for (index, value) in items.iter().enumerate() {
                        self.evaluate(schema, value, &item(path, index), problems);
                    }
                }
            }
            _ => {}
        }
    }

    fn one(&mut self, rule: &Value, this: &Cel, size: usize, path: &str) -> Option<Problem> {
        let source = text(rule, "rule")?;
        let optional = flag(rule, "optionalOldSelf");
        self.compile(source);
        let unchecked = |why: &str| {
            Some(Problem::unchecked(
                path,
                format!("the rule `{source}`, because {why}"),
            ))
        };
        let (program, facts) = match self.compiled.get(source)? {
            Compiled::Ready(program, facts) => (program, facts),
            // The check of the CRD reports the invalid rule.
            Compiled::Bad(_) => return None,
            Compiled::Unknown(why) => return unchecked(why),
        };
        if facts.old_self && !optional {
            // The rule uses `oldSelf`. An object that is created has no old value.
            return None;
        }
        let rounds = u32::try_from(facts.loops).unwrap_or(u32::MAX);
        if (size as u128).saturating_pow(rounds) > COST {
            return unchecked("its evaluation could exceed the cost limit of this check");
        }
        let mut context = self.context.new_inner_scope();
        context.add_variable_from_value("self", this.clone());
        if facts.old_self {
            context.add_variable_from_value("oldSelf", convert::nothing()?);
        }
        let result = stacker::maybe_grow(STACK / 2, STACK, || program.execute(&context));
        match result {
            Ok(Cel::Bool(true)) => None,
            Ok(Cel::Bool(false)) => {
                let message = text(rule, "messageExpression")
                    .and_then(|source| evaluate_message(source, &context))
                    .or_else(|| text(rule, "message").map(str::to_owned))
                    .unwrap_or_else(|| format!("failed rule: {source}"));
                let path = text(rule, "fieldPath").map_or_else(
                    || path.to_owned(),
                    |field| child(path, field.trim_start_matches('.')),
                );
                Some(Problem::new(&path, message))
            }
            Err(ExecutionError::NoSuchKey(key)) => Some(Problem::new(
                path,
                format!("the rule `{source}` reads `{key}`, which does not exist"),
            )),
            Err(ExecutionError::FunctionError { function, message })
                if READERS.contains(&function.as_str()) =>
            {
                Some(Problem::new(
                    path,
                    format!("the rule `{source}` cannot be evaluated: {message}"),
                ))
            }
            Ok(_) => unchecked("its result is not a boolean"),
            Err(error) => unchecked(&error.to_string()),
        }
    }
}

/// Evaluates a message expression. Returns `None` if the evaluation fails.
fn evaluate_message(source: &str, context: &Context<'_>) -> Option<String> {
    let Compiled::Ready(program, _) = compile(source) else {
        return None;
    };
    match program.execute(context) {
        Ok(Cel::String(message)) if !message.trim().is_empty() => {
            Some(Arc::unwrap_or_clone(message))
        }
        _ => None,
    }
}

fn compile(rule: &str) -> Compiled {
    if rule.len() > LENGTH {
        return Compiled::Unknown(format!("it is longer than {LENGTH} bytes"));
    }
    if depth(rule) > BRACKETS {
        return Compiled::Unknown("its brackets are nested too deep".to_owned());
    }
    let program = match stacker::maybe_grow(STACK / 2, STACK, || Program::compile(rule)) {
        Ok(program) => program,
        Err(errors) => {
            let text = errors.to_string();
            let first = text.lines().next().unwrap_or_default();
            return Compiled::Bad(format!("invalid expression: {first}"));
        }
    };
    let facts = scan::facts(&program.expression().expr);
    if let Some(name) = &facts.unsupported {
        return Compiled::Unknown(format!("it uses `{name}`"));
    }
    if let Some(name) = &facts.undeclared {
        return Compiled::Bad(format!(
            "unknown variable `{name}`: rules have `self` and `oldSelf`"
        ));
    }
    if let Some(name) = &facts.no_function {
        return Compiled::Bad(format!("unknown function `{name}`"));
    }
    Compiled::Ready(program, facts)
}

/// Returns the greatest nesting depth of brackets and prefix operators. Brackets in string literals
/// are counted too.
fn depth(rule: &str) -> usize {
    let (mut now, mut most, mut signs) = (0_usize, 0, 0_usize);
    for byte in rule.bytes() {
        match byte {
            b'(' | b'[' | b'{' => now += 1,
            b')' | b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-' | b' ') {
            signs + 1
        } else {
            0
        };
        most = most.max(now).max(signs / 2);
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn messages_of(schema: &Value, value: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        Rules::new().evaluate(schema, value, "spec", &mut problems);
        let line = |problem: &Problem| {
            let kind = if problem.unchecked { "? " } else { "" };
            format!("{kind}{}: {}", problem.path, problem.message)
        };
        problems.iter().map(line).collect()
    }

    #[test]
    fn evaluates_rules_like_the_api_server() {
        let schema = json!({"type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "my_field": {"type": "string"}, "namespace": {"type": "string"}, "a-b": {"type": "integer"},
            "size": {"type": "string", "x-kubernetes-validations": [{"rule": "quantity(self).isLessThan(quantity('1Gi'))", "message": "too large"}]},
            "ratio": {"type": "number"},
            "until": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self.startsWith('t-')", "messageExpression": "'tag ' + self"}]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max"},
            {"rule": "self.my_field == 'x' && self.__namespace__ == 'n' && self.a__dash__b == 1", "message": "names"},
            {"rule": "self.min == oldSelf.min", "message": "is never seen at creation"},
            {"rule": "self.ratio > 0.5 && self.ratio != 1.5", "message": "ratio"},
            {"rule": "self.until > timestamp('2024-01-01T00:00:00Z')", "message": "over"},
            {"rule": "!('a.b/c' in self.labels) || self.labels['a.b/c'] == 'x'", "message": "label"},
            {"rule": "self.tags.all(t, size(t) < 5)", "message": "tags", "fieldPath": ".tags"},
            {"rule": "has(self.absent) || self.absent == 1"},
            {"rule": "self.tags.sortBy(t, t) == self.tags"},
        ]});
        let good = json!({"min": 1, "max": 2, "my_field": "x", "namespace": "n", "a-b": 1, "size": "1Mi", "ratio": 1, "until": "2025-01-01T00:00:00Z", "tags": ["t-1"], "labels": {}});
        let gap =
            "? spec: the rule `self.tags.sortBy(t, t) == self.tags`, because it uses `sortBy`";
        assert_eq!(
            messages_of(&schema, &good),
            [
                "spec: the rule `has(self.absent) || self.absent == 1` reads `absent`, which does not exist",
                gap
            ]
        );
        let bad = json!({"min": 3, "max": 2, "my_field": "y", "namespace": "n", "a-b": 1, "size": "2Gi", "ratio": 1.5, "until": "2023-01-01T00:00:00Z", "tags": ["t-1234"], "labels": {"a.b/c": "y"}, "absent": 1});
        assert_eq!(
            messages_of(&schema, &bad),
            [
                "spec: failed rule: self.min <= self.max",
                "spec: names",
                "spec: ratio",
                "spec: over",
                "spec: label",
                "spec.tags: tags",
                gap,
                "spec.size: too large",
            ]
        );
        assert_eq!(
            messages_of(&schema["properties"]["tags"], &json!(["x"])),
            ["spec[0]: tag x"]
        );
    }

    #[test]
    fn rejects_rules_that_no_api_server_accepts() {
        for (rule, bad) in [
            ("self.a ==", "invalid expression"),
            ("object.a == 1", "unknown variable `object`"),
            ("self.all(x, y == 1)", "unknown variable `y`"),
            ("self.a.nope()", "unknown function `nope`"),
            ("nope(self.a)", "unknown function `nope`"),
            ("math.least(1, 2) == 1", "unknown variable `math`"),
        ] {
            match compile(rule) {
                Compiled::Bad(why) => assert!(why.contains(bad), "{rule}: {why}"),
                _ => panic!("{rule}"),
            }
        }
        for rule in [
            "self.all(x, self.exists(y, x == y))",
            "url(self.u).getHost() == 'a' && isIP(self.ip) && ip(self.ip).family() == 4 && cidr(self.c).containsIP(self.ip)",
            "self.s.matches('^a') && self.s.lowerAscii() == 'a' && self.l.isSorted() && sets.contains(self.l, ['a'])",
            "semver(self.v).isGreaterThan(semver('1.0.0')) && !format.dns1123Label().validate(self.s).hasValue()",
            "type(self.a) == int && dyn(self.a) == 1 && duration(self.d).getSeconds() > 1",
        ] {
            match compile(rule) {
                Compiled::Ready(..) => {}
                Compiled::Bad(why) | Compiled::Unknown(why) => panic!("{rule}: {why}"),
            }
        }
        let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
        assert!(matches!(
            compile(&deep),
            Compiled::Unknown(_) | Compiled::Bad(_)
        ));
        assert!(matches!(
            compile(&"!".repeat(8000)),
            Compiled::Unknown(_) | Compiled::Bad(_)
        ));
    }

    proptest! {
        // Without compiler optimisation, each case takes about 50 ms.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn parser_never_panics(rule in "[-a-z0-9.<>=!&|?:\"'()\\[\\]{}, +*/%\\\\]{0,60}") {
            let _ = compile(&rule);
        }
    }
}
