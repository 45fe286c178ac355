//! Filters: formulas of channels that say whether an alarm means anything, such as `'RF:POWER' > 10 && 'RF:MODE' == 2`.
//!
//! As in Phoebus, names are in single quotes or backticks. Numbers; `+ - * / %`; `< <= > >= == !=`; `! && ||` (also `&`
//! and `|`); `abs min max`; parentheses. What is not zero is true.

use base::text::parse_double;

/// Most bytes of a filter.
const TEXT_BYTES_MAX: usize = 4096;
/// Most parentheses and signs within each other.
const DEPTH_MAX: u32 = 64;

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Too long.
    #[error("the filter has {0} bytes; expected at most {TEXT_BYTES_MAX}")]
    Long(usize),
    /// Something else was expected.
    #[error("character {at}: found {found}; expected {expected}")]
    Found {
        /// The place, from 1.
        at: usize,
        /// What is there.
        found: String,
        /// What may be there.
        expected: &'static str,
    },
    /// Too deep.
    #[error("character {0}: more than {DEPTH_MAX} parentheses and signs within each other; expected fewer")]
    Deep(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Binary {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    Over,
    Rest,
}

/// Operators with how firmly they bind; longer ones before those that they begin with.
const OPERATORS: [(&str, Binary, u8); 15] = [
    ("||", Binary::Or, 1),
    ("&&", Binary::And, 2),
    ("==", Binary::Equal, 3),
    ("!=", Binary::Unequal, 3),
    ("<=", Binary::LessOrEqual, 4),
    (">=", Binary::GreaterOrEqual, 4),
    ("|", Binary::Or, 1),
    ("&", Binary::And, 2),
    ("<", Binary::Less, 4),
    (">", Binary::Greater, 4),
    ("+", Binary::Plus, 5),
    ("-", Binary::Minus, 5),
    ("*", Binary::Times, 6),
    ("/", Binary::Over, 6),
    ("%", Binary::Rest, 6),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Abs,
    Min,
    Max,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Channel(usize),
    Not(Box<Self>),
    Negative(Box<Self>),
    Both(Binary, Box<Self>, Box<Self>),
    Call(Function, Vec<Self>),
}

/// A formula of channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    root: Node,
    channels: Vec<String>,
}

impl Filter {
    /// Reads one.
    ///
    /// # Errors
    /// What is where, and what may be there.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(FilterError::Long(text.len()));
        }
        let mut parser = Parser { text, at: 0, depth: 0, channels: Vec::new() };
        let root = parser.expression(0)?;
        match parser.peek() {
            Some(_) => Err(parser.found("an operator or the end")),
            None => Ok(Self { root, channels: parser.channels }),
        }
    }

    /// The channels that it names.
    #[must_use]
    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    /// Whether it is true, by the values of its channels in their order; `None` while it is not known.
    #[must_use]
    pub fn is_true(&self, value: &dyn Fn(usize) -> Option<f64>) -> Option<bool> {
        evaluate(&self.root, value).filter(|number| !number.is_nan()).map(|number| number != 0.0)
    }
}

fn evaluate(node: &Node, value: &dyn Fn(usize) -> Option<f64>) -> Option<f64> {
    let truth = |is: bool| Some(f64::from(u8::from(is)));
    match node {
        Node::Number(number) => Some(*number),
        Node::Channel(index) => value(*index),
        Node::Not(node) => truth(evaluate(node, value)? == 0.0),
        Node::Negative(node) => Some(-evaluate(node, value)?),
        Node::Call(function, arguments) => {
            let mut numbers = arguments.iter().map(|node| evaluate(node, value));
            let first = numbers.next()??;
            match function {
                Function::Abs => Some(first.abs()),
                Function::Min => numbers.try_fold(first, |least, number| Some(least.min(number?))),
                Function::Max => numbers.try_fold(first, |most, number| Some(most.max(number?))),
            }
        }
        Node::Both(operator, one, other) => {
            let (one, other) = (evaluate(one, value)?, evaluate(other, value)?);
            match operator {
                Binary::Or => truth(one != 0.0 || other != 0.0),
                Binary::And => truth(one != 0.0 && other != 0.0),
                Binary::Less => truth(one < other),
                Binary::LessOrEqual => truth(one <= other),
                Binary::Greater => truth(one > other),
                Binary::GreaterOrEqual => truth(one >= other),
                Binary::Equal => truth(one == other),
                Binary::Unequal => truth(one != other),
                Binary::Plus => Some(one + other),
                Binary::Minus => Some(one - other),
                Binary::Times => Some(one * other),
                Binary::Over => Some(one / other),
                Binary::Rest => Some(one % other),
            }
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
    channels: Vec<String>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next character that is no blank; what is before it is passed.
    fn peek(&mut self) -> Option<char> {
        let blanks = self.rest().len() - self.rest().trim_start().len();
        self.at += blanks;
        self.rest().chars().next()
    }

    fn found(&mut self, expected: &'static str) -> FilterError {
        let found = match self.peek() {
            Some(letter) => format!("{letter:?}"),
            None => "the end".to_owned(),
        };
        FilterError::Found { at: self.text[..self.at].chars().count() + 1, found, expected }
    }

    fn takes(&mut self, word: &str) -> bool {
        self.peek();
        let takes = self.rest().starts_with(word);
        if takes {
            self.at += word.len();
        }
        takes
    }

    /// Operators that bind at least so firmly, with their operands.
    fn expression(&mut self, least: u8) -> Result<Node, FilterError> {
        let mut left = self.operand()?;
        loop {
            self.peek();
            let next = OPERATORS.iter().find(|(word, _, _)| self.rest().starts_with(word));
            let Some((word, operator, firm)) = next.filter(|(_, _, firm)| *firm > least) else { return Ok(left) };
            self.at += word.len();
            let right = self.expression(*firm)?;
            left = Node::Both(*operator, Box::new(left), Box::new(right));
        }
    }

    fn operand(&mut self) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError::Deep(self.text[..self.at].chars().count() + 1));
        }
        let node = match self.peek() {
            Some('!') => {
                self.at += 1;
                Node::Not(Box::new(self.operand()?))
            }
            Some('-') => {
                self.at += 1;
                Node::Negative(Box::new(self.operand()?))
            }
            Some('(') => {
                self.at += 1;
                let inside = self.expression(0)?;
                self.closing()?;
                inside
            }
            Some(quote @ ('\'' | '`')) => self.channel(quote)?,
            Some('0'..='9' | '.') => match parse_double(self.rest().as_bytes()) {
                Some((number, length)) => {
                    self.at += length;
                    Node::Number(number)
                }
                None => return Err(self.found("a number")),
            },
            _ => self.call()?,
        };
        self.depth -= 1;
        Ok(node)
    }

    fn closing(&mut self) -> Result<(), FilterError> {
        if self.takes(")") { Ok(()) } else { Err(self.found("an operator or )")) }
    }

    fn channel(&mut self, quote: char) -> Result<Node, FilterError> {
        self.at += 1;
        let Some(end) = self.rest().find(quote) else {
            self.at = self.text.len();
            return Err(self.found("the quote that ends the channel's name"));
        };
        let name = self.rest()[..end].trim().to_owned();
        if name.is_empty() {
            return Err(self.found("a channel's name"));
        }
        self.at += end + 1;
        let known = self.channels.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            self.channels.push(name);
            self.channels.len() - 1
        });
        Ok(Node::Channel(index))
    }

    fn call(&mut self) -> Result<Node, FilterError> {
        let word: String = self.rest().chars().take_while(char::is_ascii_alphabetic).collect();
        let (function, arguments) = match word.as_str() {
            "abs" => (Function::Abs, 1),
            "min" => (Function::Min, 2),
            "max" => (Function::Max, 2),
            "true" | "false" => {
                self.at += word.len();
                return Ok(Node::Number(f64::from(u8::from(word == "true"))));
            }
            _ => return Err(self.found("a number, a channel in quotes, abs, min, max, true, false, !, - or (")),
        };
        self.at += word.len();
        if !self.takes("(") {
            return Err(self.found("("));
        }
        let mut given = vec![self.expression(0)?];
        while given.len() < arguments {
            if !self.takes(",") {
                return Err(self.found("an operator or a comma"));
            }
            given.push(self.expression(0)?);
        }
        self.closing()?;
        Ok(Node::Call(function, given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result(text: &str, values: &[f64]) -> Option<bool> {
        Filter::parse(text).unwrap().is_true(&|index| values.get(index).copied())
    }

    #[test]
    fn formulas_are_reckoned_as_people_read_them() {
        for (text, values, expected) in [
            ("'a' > 10", &[11.0][..], Some(true)),
            ("'a' > 10", &[], None),
            ("`x:y` + 2 * 3 == 7", &[1.0], Some(true)),
            ("'a' - 'b' - 'a' < 0", &[1.0, 2.0], Some(true)),
            ("!('a' == 1) || 'b' != 0 && 1", &[1.0, 0.0], Some(false)),
            ("abs(-'a') >= max(2, 'b') & true", &[3.0, 1.0], Some(true)),
            ("'a' / 0 - 'a' / 0", &[1.0], None),
            ("7 % 4 <= min(3, 4)", &[], Some(true)),
            ("false", &[], Some(false)),
        ] {
            assert_eq!(result(text, values), expected, "{text}");
        }
        assert_eq!(Filter::parse("'a' > 'b' + 'a'").unwrap().channels(), ["a", "b"]);
    }

    #[test]
    fn what_is_no_formula_is_told_with_its_place() {
        for (text, expected) in [
            ("", "character 1: found the end; expected a number"),
            ("'a' >", "character 6: found the end"),
            ("'a' 3", "character 5: found '3'; expected an operator"),
            ("('a'", "expected an operator or )"),
            ("'a", "the quote that ends"),
            ("system(1)", "character 1: found 's'"),
            ("'' > 1", "a channel's name"),
        ] {
            let error = Filter::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Filter::parse(&"(".repeat(3000)).is_err() && Filter::parse(&"1+".repeat(9000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-'`a-z0-9 .!&|<>=+*/%(),]{0,40}", values: [f64; 4]) {
            if let Ok(filter) = Filter::parse(&text) {
                let _ = filter.is_true(&|index| values.get(index).copied());
            }
        }
    }
}
