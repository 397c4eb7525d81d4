//! Static analysis of a CEL expression: variables, functions, loops, fields of `self`.

use kube_cel::cel::{IdedExpr, common::ast::Expr};

/// Macros and functions that the API server supports and this evaluator does not.
const UNSUPPORTED: &[&str] = &[
    "bind",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "existsOne",
    "optMap",
    "optFlatMap",
    "authorizer",
];

/// Names of the functions that the API server supports. A method such as `text.charAt(0)` is listed
/// without its receiver: `charAt`.
const FUNCTIONS: &[&str] = &[
    "add",
    "all",
    "asApproximateFloat",
    "asInteger",
    "bool",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "byte",
    "date",
    "datetime",
    "endsWith",
    "equivalent",
    "exists",
    "exists_one",
    "family",
    "filter",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "has",
    "hasValue",
    "indexOf",
    "int",
    "intersects",
    "ip",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "labelValue",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "map",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optional",
    "or",
    "orValue",
    "prefixLength",
    "qualifiedName",
    "quantity",
    "quote",
    "range",
    "replace",
    "reverse",
    "semver",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "unwrap",
    "unwrapOpt",
    "upperAscii",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

/// Names that are not variables: namespaces of functions, and types.
const NAMES: &[&str] = &[
    "bool",
    "bytes",
    "cidr",
    "double",
    "dyn",
    "duration",
    "format",
    "int",
    "ip",
    "lists",
    "list",
    "map",
    "null_type",
    "optional",
    "quantity",
    "regex",
    "semver",
    "sets",
    "string",
    "strings",
    "timestamp",
    "type",
    "uint",
    "url",
    "optional_type",
];

/// Result of the analysis of an expression.
#[derive(Debug, Default)]
pub(in super::super) struct ExpressionAnalysis {
    /// `true` if the expression uses `oldSelf`.
    pub(in super::super) old_self: bool,
    /// Nesting depth of loops.
    pub(in super::super) loops: usize,
    /// First macro or function in the expression that only the API server supports; `None` if this
    /// evaluator supports all of them.
    pub(in super::super) unsupported: Option<String>,
    /// First variable in the expression that is not defined; `None` if all variables are defined.
    pub(in super::super) undeclared: Option<String>,
    /// First unknown function in the expression; `None` if all functions are known.
    pub(in super::super) no_function: Option<String>,
    /// Paths of fields below `self` and `oldSelf`, as written in the rule.
    pub(in super::super) paths: Vec<Vec<String>>,
}

pub(super) fn facts(expression: &Expr) -> ExpressionAnalysis {
    let mut scan = Scan {
        facts: ExpressionAnalysis::default(),
        bound: Vec::new(),
        loops: 0,
    };
    scan.visit(expression);
    scan.facts
}

struct Scan {
    facts: ExpressionAnalysis,
    /// Variables of the enclosing loops.
    bound: Vec<String>,
    loops: usize,
}

impl Scan {
    fn visit(&mut self, expression: &Expr) {
        match expression {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.variable(name),
            Expr::Select(_) => {
                let mut fields = Vec::new();
                let root = chain(expression, &mut fields);
                match root {
                    Expr::Ident(name)
                        if matches!(name.as_str(), "self" | "oldSelf")
                            && !self.bound.contains(name) =>
                    {
                        self.variable(name);
                        fields.reverse();
                        self.facts.paths.push(fields);
                    }
                    root => self.visit(root),
                }
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                let plain = name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
                    && name.starts_with(|letter: char| letter.is_ascii_alphabetic());
                let last = name.rsplit('.').next().unwrap_or(name);
                if plain && UNSUPPORTED.contains(&last) {
                    self.facts.unsupported.get_or_insert(last.to_owned());
                } else if plain && !FUNCTIONS.contains(&last) {
                    self.facts.no_function.get_or_insert(name.to_owned());
                }
                // The parser does not support loops with two variables, and parses them as function
                // calls.
                let unread_loop =
                    matches!(last, "all" | "exists" | "exists_one") && call.args.len() == 3;
                if unread_loop {
                    self.facts
                        .unsupported
                        .get_or_insert(format!("{last} with two variables"));
                }
                if let Some(target) = &call.target {
                    self.visit(&target.expr);
                }
                self.each(&call.args);
            }
            Expr::List(list) => self.each(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    self.entry(&entry.expr);
                }
            }
            Expr::Struct(object) => {
                for entry in &object.entries {
                    self.entry(&entry.expr);
                }
            }
            Expr::Comprehension(all) => {
                self.visit(&all.iter_range.expr);
                self.visit(&all.accu_init.expr);
                let before = self.bound.len();
                self.bound.push(all.iter_var.clone());
                self.bound.extend(all.iter_var2.clone());
                self.bound.push(all.accu_var.clone());
                self.loops += 1;
                self.facts.loops = self.facts.loops.max(self.loops);
                self.visit(&all.loop_cond.expr);
                self.visit(&all.loop_step.expr);
                self.loops -= 1;
                self.visit(&all.result.expr);
                self.bound.truncate(before);
            }
        }
    }

    fn each(&mut self, all: &[IdedExpr]) {
        for one in all {
            self.visit(&one.expr);
        }
    }

    fn entry(&mut self, entry: &kube_cel::cel::common::ast::EntryExpr) {
        use kube_cel::cel::common::ast::EntryExpr;
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value.expr),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key.expr);
                self.visit(&entry.value.expr);
            }
        }
    }

    fn variable(&mut self, name: &str) {
        if self.bound.iter().any(|bound| bound == name) {
            return;
        }
        match name {
            "self" => {}
            "oldSelf" => self.facts.old_self = true,
            name if name.starts_with('@') || NAMES.contains(&name) => {}
            // `cel` is the prefix of a macro that only the API server supports.
            "cel" => {}
            name => {
                self.facts.undeclared.get_or_insert(name.to_owned());
            }
        }
    }
}

/// Splits a chain of field selections such as `self.a.b`. Returns the operand (`self`), and adds
/// the names of the fields to `fields`, last field first.
fn chain<'a>(mut expression: &'a Expr, fields: &mut Vec<String>) -> &'a Expr {
    while let Expr::Select(select) = expression {
        fields.push(select.field.clone());
        expression = &select.operand.expr;
    }
    expression
}
