//! Checks the keys of a large document before it is parsed. If a key is a list or a map, the parser
//! would store the whole list or map before it rejects the key.

use serde_saphyr::granit_parser::{self, Event, Parser};

use super::{Allowance, limits, problem, split::Part};
use crate::diagnostic::Finding;

/// Length of the largest text that needs no check, in bytes. Each node has at least two bytes.
const SMALL: usize = 2 * limits::MAX_STORED_NODES;

/// Position in an open list or map.
#[derive(Clone, Copy)]
enum Position {
    List,
    Key,
    Value,
}

/// Returns an error in three cases: a key of a large document is a list or map, the document is
/// invalid or too complex, or parsing was cancelled. The options are those of the parser
/// (`limits::options`), so that the parser rejects each document that this check cannot read.
pub(super) fn check(part: Part<'_>, file: &str, allowance: &Allowance) -> Result<(), Finding> {
    if part.text.len() <= SMALL {
        return Ok(());
    }
    let depth = granit_parser::Options::default().block_nesting_limit;
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: limits::MAX_DEPTH,
        block_nesting_limit: depth.max(limits::MAX_DEPTH + 1),
    };
    let (mut open, mut nodes) = (Vec::new(), 0);
    for event in Parser::new_from_str_with_options(part.text, options) {
        allowance.check()?;
        let (event, span) = event.map_err(|error| problem::scan(&error, part.line, file))?;
        let line = part.line + span.start.line().saturating_sub(1);
        let is_node = !matches!(event, Event::SequenceEnd | Event::MappingEnd);
        nodes += usize::from(is_node);
        // This check counts aliases as nodes, but the parser does not. The parser accepts at most
        // `limits::MAX_UNFOLDED` aliases. Therefore a valid document has less than twice
        // `MAX_NODES` nodes here.
        if nodes > 2 * limits::MAX_NODES {
            return Err(problem::too_many_nodes(line, file));
        }
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..)
                if matches!(open.last(), Some(Position::Key)) =>
            {
                return Err(problem::complex_key(line, file));
            }
            Event::SequenceStart(..) | Event::MappingStart(..)
                if open.len() == limits::MAX_DEPTH =>
            {
                return Err(problem::too_deep(line, file));
            }
            Event::SequenceStart(..) => open.push(Position::List),
            Event::MappingStart(..) => open.push(Position::Key),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                next(&mut open);
            }
            Event::Scalar(..) | Event::Alias(..) => next(&mut open),
            _ => {}
        }
    }
    Ok(())
}

/// Updates the position in the innermost open list or map after a node.
fn next(open: &mut [Position]) {
    if let Some(last) = open.last_mut() {
        *last = match *last {
            Position::List => Position::List,
            Position::Key => Position::Value,
            Position::Value => Position::Key,
        };
    }
}
