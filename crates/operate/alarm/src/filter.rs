//! Filters: formulas of channels that determine whether an alarm is suppressed, such as `'RF:POWER' > 10 && 'RF:MODE' == 2`.
//!
//! The language is that of Phoebus' formulas, with the same meaning. Channel names are in single quotes or backticks; names of
//! letters, digits, `_` and `:` need no quotes. Constants: numbers, `true`, `false`, `E`, `PI`. Operators by precedence:
//! `^ * / %`, then `+ -`, then `< <= > >= == !=`, then `& && | ||` and `CONDITION ? YES : NO`. Operators of one group have equal
//! precedence and associate to the left. `!` and `-` precede an operand. There are functions of numbers. A filter is true if its
//! value is greater than 0.
//!
//! Functions of texts and arrays are parsed but not evaluated: see [`FilterError::Unsupported`].

use base::text::parse_double;

/// Maximum bytes of a filter.
const TEXT_BYTES_MAX: usize = 4096;
/// Maximum nesting depth of parentheses and signs.
const DEPTH_MAX: u32 = 64;
/// Maximum arguments of a function.
const ARGUMENTS_MAX: usize = 64;

/// Reason why a text is not a valid filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Too long; its size in bytes.
    #[error("the filter has {0} bytes; expected at most {TEXT_BYTES_MAX}")]
    Long(usize),
    /// Syntax error.
    #[error("character {at}: found {found}; expected {expected}")]
    Found {
        /// Position in characters, from 1.
        at: usize,
        /// The text found.
        found: String,
        /// The expected text.
        expected: &'static str,
    },
    /// Nested too deeply; position in characters.
    #[error("character {0}: more than {DEPTH_MAX} parentheses and signs within each other; expected fewer")]
    Deep(usize),
    /// Valid in Phoebus, but contains a part that is not evaluated here.
    #[error(
        "character {at}: {found} is not evaluated here; expected numbers, channels, operators and functions of numbers"
    )]
    Unsupported {
        /// Position in characters, from 1.
        at: usize,
        /// The text found.
        found: String,
    },
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
    Power,
}

/// Precedence of `& | ?:`, comparisons, sums and products.
const BOOL: u8 = 1;
const COMPARISON: u8 = 2;
const SUM: u8 = 3;
const PRODUCT: u8 = 4;

/// Operators with precedence; longer ones before their prefixes.
const OPERATORS: [(&str, Binary, u8); 16] = [
    ("||", Binary::Or, BOOL),
    ("&&", Binary::And, BOOL),
    ("==", Binary::Equal, COMPARISON),
    ("!=", Binary::Unequal, COMPARISON),
    ("<=", Binary::LessOrEqual, COMPARISON),
    (">=", Binary::GreaterOrEqual, COMPARISON),
    ("|", Binary::Or, BOOL),
    ("&", Binary::And, BOOL),
    ("<", Binary::Less, COMPARISON),
    (">", Binary::Greater, COMPARISON),
    ("+", Binary::Plus, SUM),
    ("-", Binary::Minus, SUM),
    ("*", Binary::Times, PRODUCT),
    ("/", Binary::Over, PRODUCT),
    ("%", Binary::Rest, PRODUCT),
    ("^", Binary::Power, PRODUCT),
];

/// A function of numbers.
#[derive(Clone, Copy, Debug)]
enum Function {
    One(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
    /// Two or more arguments, folded from the left.
    Many(fn(f64, f64) -> f64),
}

/// Phoebus' functions of numbers.
const FUNCTIONS: [(&str, Function); 25] = [
    ("abs", Function::One(f64::abs)),
    ("acos", Function::One(f64::acos)),
    ("asin", Function::One(f64::asin)),
    ("atan", Function::One(f64::atan)),
    ("atan2", Function::Two(f64::atan2)),
    ("ceil", Function::One(f64::ceil)),
    ("cos", Function::One(f64::cos)),
    ("cosh", Function::One(f64::cosh)),
    ("exp", Function::One(f64::exp)),
    ("expm1", Function::One(f64::exp_m1)),
    ("floor", Function::One(f64::floor)),
    ("hypot", Function::Two(f64::hypot)),
    ("log", Function::One(f64::ln)),
    ("log10", Function::One(f64::log10)),
    ("max", Function::Many(f64::max)),
    ("min", Function::Many(f64::min)),
    ("pow", Function::Two(f64::powf)),
    ("round", Function::One(|number| (number + 0.5).floor())),
    ("sin", Function::One(f64::sin)),
    ("sinh", Function::One(f64::sinh)),
    ("sqrt", Function::One(f64::sqrt)),
    ("tan", Function::One(f64::tan)),
    ("tanh", Function::One(f64::tanh)),
    ("toDegrees", Function::One(f64::to_degrees)),
    ("toRadians", Function::One(f64::to_radians)),
];

/// Named constants.
const CONSTANTS: [(&str, f64); 4] =
    [("true", 1.0), ("false", 0.0), ("E", std::f64::consts::E), ("PI", std::f64::consts::PI)];

#[derive(Clone, Debug)]
enum Node {
    Number(f64),
    Channel(usize),
    Not(Box<Self>),
    Negative(Box<Self>),
    Both(Binary, Box<Self>, Box<Self>),
    If(Box<[Self; 3]>),
    /// Index in the table of functions.
    Call(usize, Vec<Self>),
}

/// A parsed formula.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    root: Node,
    channels: Vec<String>,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Filter {
    /// Parses a formula.
    ///
    /// # Errors
    /// If the text is not valid, with position and expectation.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(FilterError::Long(text.len()));
        }
        let mut parser = Parser { text, at: 0, depth: 0, channels: Vec::new(), unsupported: None };
        let root = parser.expression(0)?;
        match (parser.peek(), parser.unsupported.take()) {
            (Some(_), _) => Err(parser.found("an operator or the end")),
            (None, Some(unsupported)) => Err(unsupported),
            (None, None) => Ok(Self { text: text.to_owned(), root, channels: parser.channels }),
        }
    }

    /// The channels in the formula.
    #[must_use]
    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    /// Whether the filter is true, given the values of its channels by index; `None` while unknown.
    #[must_use]
    pub fn is_true(&self, value: &dyn Fn(usize) -> Option<f64>) -> Option<bool> {
        evaluate(&self.root, value).filter(|number| !number.is_nan()).map(|number| number > 0.0)
    }
}

fn evaluate(node: &Node, value: &dyn Fn(usize) -> Option<f64>) -> Option<f64> {
    let truth = |is: bool| Some(f64::from(u8::from(is)));
    match node {
        Node::Number(number) => Some(*number),
        Node::Channel(index) => value(*index),
        Node::Not(node) => truth(evaluate(node, value)? == 0.0),
        Node::Negative(node) => Some(-evaluate(node, value)?),
        Node::If(parts) => {
            let [condition, yes, no] = &**parts;
            let condition = evaluate(condition, value).filter(|number| !number.is_nan())?;
            evaluate(if condition == 0.0 { no } else { yes }, value)
        }
        Node::Call(function, arguments) => {
            let mut numbers = arguments.iter().map(|node| evaluate(node, value));
            let first = numbers.next()??;
            match FUNCTIONS.get(*function)?.1 {
                Function::One(function) => Some(function(first)),
                Function::Two(function) => Some(function(first, numbers.next()??)),
                Function::Many(function) => numbers.try_fold(first, |all, number| Some(function(all, number?))),
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
                Binary::Power => Some(one.powf(other)),
            }
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
    channels: Vec<String>,
    /// The first part that is not evaluated here.
    unsupported: Option<FilterError>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next character after skipping blanks.
    fn peek(&mut self) -> Option<char> {
        let blanks = self.rest().len() - self.rest().trim_start().len();
        self.at += blanks;
        self.rest().chars().next()
    }

    /// Position of a byte in characters, from 1.
    fn place(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }

    fn found(&mut self, expected: &'static str) -> FilterError {
        let found = match self.peek() {
            Some(letter) => format!("{letter:?}"),
            None => "the end".to_owned(),
        };
        FilterError::Found { at: self.place(self.at), found, expected }
    }

    /// Records an unsupported part, and continues, to check the rest of the formula.
    fn unsupported(&mut self, at: usize, found: String) -> Node {
        let at = self.place(at);
        self.unsupported.get_or_insert(FilterError::Unsupported { at, found });
        Node::Number(f64::NAN)
    }

    fn takes(&mut self, word: &str) -> bool {
        self.peek();
        let takes = self.rest().starts_with(word);
        if takes {
            self.at += word.len();
        }
        takes
    }

    /// Parses operators of higher precedence than `least`, with their operands.
    fn expression(&mut self, least: u8) -> Result<Node, FilterError> {
        let mut left = self.operand()?;
        loop {
            self.peek();
            if least < BOOL && self.takes("?") {
                let yes = self.expression(BOOL)?;
                if !self.takes(":") {
                    return Err(self.found("an operator or :"));
                }
                // Each level is nested in the previous one.
                let no = self.deeper(|parser| parser.expression(0))?;
                left = Node::If(Box::new([left, yes, no]));
                continue;
            }
            let next = OPERATORS.iter().find(|(word, _, _)| self.rest().starts_with(word));
            let Some((word, operator, firm)) = next.filter(|(_, _, firm)| *firm > least) else { return Ok(left) };
            self.at += word.len();
            let right = self.expression(*firm)?;
            left = Node::Both(*operator, Box::new(left), Box::new(right));
        }
    }

    /// Parses a nested part.
    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Result<Node, FilterError>) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError::Deep(self.place(self.at)));
        }
        let node = read(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn operand(&mut self) -> Result<Node, FilterError> {
        self.deeper(|parser| match parser.peek() {
            Some('!') => {
                parser.at += 1;
                Ok(Node::Not(Box::new(parser.operand()?)))
            }
            Some('-') => {
                parser.at += 1;
                Ok(Node::Negative(Box::new(parser.operand()?)))
            }
            Some('(') => {
                parser.at += 1;
                let inside = parser.expression(0)?;
                parser.closing()?;
                Ok(inside)
            }
            Some(quote @ ('\'' | '`')) => parser.quoted(quote),
            Some('"') => parser.words(),
            Some('0'..='9' | '.') => match parse_double(parser.rest().as_bytes()) {
                Some((number, length)) => {
                    parser.at += length;
                    Ok(Node::Number(number))
                }
                None => Err(parser.found("a number")),
            },
            _ => parser.name(),
        })
    }

    fn closing(&mut self) -> Result<(), FilterError> {
        if self.takes(")") { Ok(()) } else { Err(self.found("an operator or )")) }
    }

    /// The text up to the next quote.
    fn until(&mut self, quote: char, expected: &'static str) -> Result<String, FilterError> {
        self.at += quote.len_utf8();
        let Some(end) = self.rest().find(quote) else {
            self.at = self.text.len();
            return Err(self.found(expected));
        };
        let inside = self.rest()[..end].to_owned();
        self.at += end + quote.len_utf8();
        Ok(inside)
    }

    fn quoted(&mut self, quote: char) -> Result<Node, FilterError> {
        let name = self.until(quote, "the quote that ends the channel's name")?;
        match name.trim() {
            "" => Err(self.found("a channel's name")),
            name => Ok(self.channel(name)),
        }
    }

    fn channel(&mut self, name: &str) -> Node {
        let known = self.channels.iter().position(|known| known == name);
        Node::Channel(known.unwrap_or_else(|| {
            self.channels.push(name.to_owned());
            self.channels.len() - 1
        }))
    }

    /// A text, which is an argument of text functions.
    fn words(&mut self) -> Result<Node, FilterError> {
        let at = self.at;
        loop {
            self.until('"', "the quote that ends the text")?;
            // Continue after an escaped quote.
            if !self.text[..self.at - 1].ends_with('\\') {
                break;
            }
            self.at -= 1;
        }
        Ok(self.unsupported(at, format!("the text {}", table::clipped(&self.text[at..self.at]))))
    }

    /// A function, constant or channel.
    fn name(&mut self) -> Result<Node, FilterError> {
        let at = self.at;
        let is_of_it = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
        let word: String = self.rest().chars().take_while(is_of_it).collect();
        if word.is_empty() {
            return Err(self.found("a number, a channel, a function, !, - or ("));
        }
        self.at += word.len();
        if self.peek() == Some('(') {
            return self.call(at, &word);
        }
        match CONSTANTS.iter().find(|(name, _)| *name == word) {
            Some((_, number)) => Ok(Node::Number(*number)),
            None => Ok(self.channel(&word)),
        }
    }

    fn call(&mut self, at: usize, word: &str) -> Result<Node, FilterError> {
        let is_it = |name: &str, function: &Function| {
            name == word || matches!(function, Function::Many(_)) && name.eq_ignore_ascii_case(word)
        };
        let row = FUNCTIONS.iter().position(|(name, function)| is_it(name, function));
        let unknown = row.is_none().then(|| self.unsupported(at, format!("the function {:?}", table::clipped(word))));
        self.at += 1;
        let mut given = Vec::new();
        if self.peek() != Some(')') {
            given.push(self.expression(0)?);
            while self.takes(",") {
                if given.len() == ARGUMENTS_MAX {
                    return Err(self.found("at most 64 arguments"));
                }
                given.push(self.expression(0)?);
            }
        }
        if !self.takes(")") {
            return Err(self.found("an operator, a comma or )"));
        }
        let Some(row) = row else { return Ok(unknown.unwrap_or(Node::Number(f64::NAN))) };
        let (least, most) = match FUNCTIONS[row].1 {
            Function::One(_) => (1, 1),
            Function::Two(_) => (2, 2),
            Function::Many(_) => (2, ARGUMENTS_MAX),
        };
        if !(least..=most).contains(&given.len()) {
            let found = format!("{} arguments of {word}", given.len());
            let expected = ["one", "two", "two or more"][if most > 2 { 2 } else { most - 1 }];
            return Err(FilterError::Found { at: self.place(at), found, expected });
        }
        Ok(Node::Call(row, given))
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
    fn formulas_have_the_values_that_phoebus_gives_them() {
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
            // Unquoted names, powers, conditions, functions.
            ("2*PV1 > RF:B_2", &[3.0, 5.0], Some(true)),
            ("x ^ 2 == 9", &[3.0], Some(true)),
            ("2 ^ 3 ^ 2 == 64", &[], Some(true)),
            ("a > 1 ? b : 0", &[2.0, 1.0], Some(true)),
            ("a > 1 ? b : 0", &[1.0, 1.0], Some(false)),
            ("a ? 0 : b ? 1 : 0", &[0.0, 2.0], Some(true)),
            ("a ? 1 : 0", &[f64::NAN], None),
            ("MAX(1, 2, 3) == 3 && sqrt(16) == 4 && round(2.5) == 3", &[], Some(true)),
            ("atan2(0, 1) == 0 & cos(PI) < 0 & log(E) == 1", &[], Some(true)),
            // `&` and `|` have equal precedence, from the left; a negative value is false.
            ("1 || 0 && 0", &[], Some(false)),
            ("-a", &[1.0], Some(false)),
        ] {
            assert_eq!(result(text, values), expected, "{text}");
        }
        assert_eq!(Filter::parse("'a' > 'b' + 'a'").unwrap().channels(), ["a", "b"]);
        assert_eq!(Filter::parse("RF:A > 'RF:A' + RF:B").unwrap().channels(), ["RF:A", "RF:B"]);
    }

    #[test]
    fn a_malformed_formula_is_refused_with_the_place() {
        for (text, expected) in [
            ("", "character 1: found the end; expected a number"),
            ("'a' >", "character 6: found the end"),
            ("'a' 3", "character 5: found '3'; expected an operator"),
            ("('a'", "expected an operator or )"),
            ("'a", "the quote that ends"),
            ("abs(1, 2)", "character 1: found 2 arguments of abs; expected one"),
            ("min(1)", "found 1 arguments of min; expected two or more"),
            ("a ? 1", "expected an operator or :"),
            ("'' > 1", "a channel's name"),
        ] {
            let error = Filter::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in ["(".repeat(3000), "1+".repeat(9000), "1?1:".repeat(500), format!("abs{}", "(".repeat(100))] {
            assert!(Filter::parse(&text).is_err());
        }
    }

    #[test]
    fn an_unsupported_formula_is_distinguished_from_a_malformed_one() {
        let unsupported = |text: &str| match Filter::parse(text) {
            Err(FilterError::Unsupported { at, found }) => (at, found),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(unsupported("1 + arrayMax(`A`)"), (5, "the function \"arrayMax\"".to_owned()));
        assert_eq!(unsupported("strEqual(`A`, \"a \\\" b\") & 1").0, 1);
        assert_eq!(unsupported("highestSeverity()").0, 1);
        assert!(matches!(Filter::parse("arrayMax(`A`"), Err(FilterError::Found { .. })));
        assert!(matches!(Filter::parse("arrayMax(`A`) +"), Err(FilterError::Found { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-'`a-zé0-9 .!&|<>=+*/%(),?:^\"\\\\]{0,40}", values: [f64; 4]) {
            if let Ok(filter) = Filter::parse(&text) {
                let _ = filter.is_true(&|index| values.get(index).copied());
            }
        }
    }
}
