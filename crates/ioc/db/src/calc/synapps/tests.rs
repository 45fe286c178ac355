//! Expressions with their values.

use super::*;
use crate::calc::CalcError;
use proptest::prelude::*;

/// Runs an expression of the dialect with texts, with the variables of the published test (`test_sCalc.py` of synApps calc).
fn run(text: &str) -> Option<Item> {
    let mut numbers: Vec<f64> = (1..=12).map(f64::from).collect();
    let mut texts: Vec<Str40> = (1..=11).map(|n| Str40::new(format!("string {n}").as_bytes())).collect();
    texts.push(Str40::new(b"xxx:scan1.EXSC"));
    let program = compile(text.as_bytes(), Dialect::Texts).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let (value, text) = (100.0, Str40::new(b"last"));
    let (numbers, texts) = (numbers.as_mut_slice(), texts.as_mut_slice());
    program
        .run(&mut Frame { numbers, texts, arrays: &mut [], size: 0, value, text, array: &[], seed: &mut 1, stored: 0 })
        .ok()
}

fn number(text: &str) -> f64 {
    match run(text) {
        Some(Item::Number(value)) => value,
        other => panic!("{text}: {other:?}"),
    }
}

fn text(expression: &str) -> String {
    match run(expression) {
        Some(Item::Text(value)) => value.to_str().to_owned(),
        other => panic!("{expression}: {other:?}"),
    }
}

/// Runs an expression of the dialect with arrays, with the arrays of the published test (`test_aCalc.py`), of 10 elements.
fn array(expression: &str) -> Item {
    let mut numbers: Vec<f64> = (1..=12).map(f64::from).collect();
    let mut arrays: Vec<Vec<f64>> = (0..12).map(|n| (0..3).map(|i| f64::from(3 * n + i + 1)).collect()).collect();
    let program =
        compile(expression.as_bytes(), Dialect::Arrays).unwrap_or_else(|error| panic!("{expression}: {error:?}"));
    let (value, text) = (100.0, Str40::EMPTY);
    let (numbers, arrays) = (numbers.as_mut_slice(), arrays.as_mut_slice());
    let mut frame =
        Frame { numbers, texts: &mut [], arrays, size: 10, value, text, array: &[9.0], seed: &mut 1, stored: 0 };
    program.run(&mut frame).unwrap_or_else(|_| panic!("{expression} has no value"))
}

fn first(expression: &str, count: usize) -> Vec<f64> {
    match array(expression) {
        Item::Array(lanes) => {
            assert!(lanes.values[count..].iter().all(|value| *value == 0.0), "{expression}: {:?}", lanes.values);
            lanes.values[..count].to_vec()
        }
        other => panic!("{expression}: {other:?}"),
    }
}

/// `test_sCalc.py` of synApps calc, and the examples of its page sCalcoutRecord.
#[test]
fn numbers_have_the_published_values() {
    for (expression, expected) in [
        ("max(A,B,C)", 3.0),
        ("min(D,E,F)", 4.0),
        ("A<<2", 4.0),
        ("L>>1", 6.0),
        ("A?B:C", 2.0),
        ("A=0?1:0", 0.0),
        ("(B=0)?(A+16384):A+B", 3.0),
        ("1.e7/A", 1e7),
        ("A%10+1", 2.0),
        ("!A", 0.0),
        ("C+((A-E)/(D-E))*(B-C)", -1.0),
        ("A#B", 1.0),
        ("E+nint(D*((A-C)/(B-C)))", 13.0),
        ("A&&B&&!I", 0.0),
        ("(A&B&C&D)=1", 0.0),
        ("A/(10**(B-2))", 1.0),
        ("min(max(C,A/B),D)", 3.0),
        ("A?A+(B|C|D|E):F", 8.0),
        ("D?4:C?3:B?2:A?1:0", 4.0),
        ("A&(I||!J)&(K||!L)", 1.0),
        ("A=0||a=2", 0.0),
        ("-(-2)**2", 4.0),
        ("--2**2", 4.0),
        ("-2^2", 4.0),
        ("2^3^2", 64.0),
        ("A--B*C", 7.0),
        ("SSCANF(AA,'%*6c%f')", 1.0),
        ("INT(\"1234\")", 1234.0),
        ("DBL(\"12345678\"[4,7])", 5678.0),
        ("SSCANF(\"-1\",\"%d\")", -1.0),
        ("SSCANF(\"-1\",\"%hd\")", -1.0),
        ("SSCANF(\"-1\",\"%ld\")", -1.0),
        ("SSCANF('V=1.25', \"%*2c%lf\")", 1.25),
        ("(LL['.',-1]=='EXSC') && A", 1.0),
        ("A?0;C:=3.3:B", 0.0),
        ("A?(0;C:=3.3):B", 0.0),
        ("C:=3;C", 3.0),
        ("D:=0;@D:=7;A", 7.0),
        ("B:=10;UNTIL(B:=B-1;B<1)", 1.0),
        ("B:=10;A:=UNTIL(B:=B-1;B<1);B", 0.0),
        ("A+(AA:='abc';B:=0;7)", 8.0),
        ("'abc1.2'+A", 1.0),
        ("LEN(AA)", 8.0),
        ("BYTE('A')", 65.0),
        ("A>?B", 2.0),
        ("A<?B", 1.0),
        ("VAL", 100.0),
        ("M+P", 0.0),
        ("ATAN2(1,0)", 0.0),
        ("READ(WRITE('%hd',-2),'%hd')", -2.0),
        ("READ(WRITE('%lf',1.5),'%lf')", 1.5),
        ("NOT 0", -1.0),
        ("0.1+0.2=0.3", 1.0),
    ] {
        assert_eq!(number(expression), expected, "{expression}");
    }
}

#[test]
fn texts_have_the_published_values() {
    for (expression, expected) in [
        ("LL[0,'.']", "xxx:scan1"),
        ("A>B?BB:AA[A,A]", "t"),
        ("printf('!PFCU%02d ', a)+aa[0,1]", "!PFCU01 st"),
        ("$P('!PFCU%02d E ', a) + $P('%d',b*100)", "!PFCU01 E 200"),
        ("AA + BB", "string 1string 2"),
        ("A?'A':'!A'", "A"),
        ("'$(P)$(SM)CalcMove.CALC PP MS'", "$(P)$(SM)CalcMove.CALC PP MS"),
        ("$P('SETP %5.2f;SETP?',A)", "SETP  1.00;SETP?"),
        ("$P('RAMP %d;RAMP?',A)", "RAMP 1;RAMP?"),
        ("\"abcdef\"{\"bc\",\"gh\"}", "aghdef"),
        ("'yyy:'+'xxx:abc'-'xxx:'", "yyy:abc"),
        ("'abcabc'|-'bc'", "abca"),
        ("@@0:=BB;AA", "string 2"),
        ("a:=-1;@@-a:=AA;BB", "string 1"),
        ("STR(1)", "1.00000000"),
        ("B:=3;AA:='';C:=UNTIL(AA:=AA+('abcd')[B,B];B:=B-1;B<0);AA", "dcba"),
        ("'abc'>>2", "  abc"),
        ("'abc'<<2", "c"),
        ("SVAL", "last"),
        ("TR_ESC('a\\tb')", "a\tb"),
        ("ESC(TR_ESC('a\\tb'))", "a\\tb"),
        ("AMODBUS('F7031389000A')", ":F7031389000A60"),
        ("CRC16('\\x01\\x03\\x00\\x00\\x00\\x0a')", "\\xc5\\xcd"),
        ("XOR8('AB')", "\\x03"),
        ("SSCANF('abc=12', '%[a-c]')", "abc"),
        ("max('a','c','b')", "c"),
    ] {
        assert_eq!(text(expression), expected, "{expression}");
    }
}

#[test]
fn errors_leave_an_expression_without_a_value() {
    for expression in ["A/0", "A%0", "SQRT(-1)", "LOG(-1)", "SSCANF(AA,'%d%d')", "SSCANF(AA,'%d')", "PRINTF(1,2)"] {
        assert_eq!(run(expression), None, "{expression}");
    }
}

#[test]
fn malformed_expressions_are_refused() {
    for (expression, expected) in [
        ("", CalcError::Empty),
        ("1+", CalcError::Incomplete),
        ("(1", CalcError::ParenOpen),
        ("1)", CalcError::ParenNotOpen),
        ("1]", CalcError::BracketNotOpen),
        ("1}", CalcError::BraceNotOpen),
        ("AA[1]", CalcError::Incomplete),
        ("1,2", CalcError::BadSeparator),
        ("A?B", CalcError::Conditional),
        ("AANDB", CalcError::Syntax),
        ("1:=2", CalcError::BadAssignment),
        ("a:=0", CalcError::Incomplete),
    ] {
        assert_eq!(compile(expression.as_bytes(), Dialect::Texts), Err(expected), "{expression}");
    }
}

#[test]
fn an_endless_loop_ends_after_its_rounds() {
    assert_eq!(number("A:=0;B:=UNTIL(A:=A+1;0);A"), f64::from(ROUNDS) + 1.0);
}

/// `test_aCalc.py` of synApps calc, and the examples of its page aCalcoutRecord.
#[test]
fn arrays_have_the_published_values() {
    for (expression, expected) in [
        ("LL[0,1]", vec![34.0, 35.0]),
        ("AA{1,2}", vec![0.0, 2.0, 3.0]),
        ("A<B?BB:AA[A,A]", vec![4.0, 5.0, 6.0]),
        ("AA + BB", vec![5.0, 7.0, 9.0]),
        ("max(AA,BB)", vec![4.0, 5.0, 6.0]),
        ("aa:=aa*2;AA", vec![2.0, 4.0, 6.0]),
        ("@@0:=BB;AA", vec![4.0, 5.0, 6.0]),
        ("(CUM(BB)){0,2}", vec![4.0, 9.0, 15.0]),
        ("ix[1,3]", vec![1.0, 2.0, 3.0]),
        ("cat(aa[0,2],bb[0,2])", vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ("cat(aa[0,2],7)", vec![1.0, 2.0, 3.0, 7.0]),
        ("AA>>1", vec![0.0, 1.0, 2.0, 3.0]),
        ("AA<<1", vec![2.0, 3.0]),
        ("AA>1", vec![0.0, 1.0, 1.0]),
        ("AVAL", vec![9.0]),
        ("(DERIV(IX*IX))[0,2]", vec![0.0, 2.0, 4.0]),
    ] {
        let values = first(expression, expected.len());
        let near = values.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near, "{expression}: {values:?}, expected {expected:?}");
    }
    for (expression, expected) in [
        ("sum(BB)", 15.0),
        ("avg(BB[0,2])", 5.0),
        ("std(BB[0,2])", 1.0),
        ("amax(aa[0,2])", 3.0),
        ("amin(aa[0,2])", 1.0),
        ("ixmax(aa[0,2])", 2.0),
        ("ixmin(aa[0,2])", 0.0),
        ("ixz(IX-2.5)", 2.5),
        ("ixnz(AA-1)", 1.0),
        ("FWHM(10-ABS(IX-5)*2)", 5.0),
        ("finite(AA)", 1.0),
        ("isnan(AA)", 0.0),
        ("1/0", DIVIDED),
        ("SQRT(-1)", 0.0),
        ("DD:=FITQ(2+3*IX+IX*IX,A,B,C);A+B*10+C*100", 132.0),
    ] {
        let value = array(expression).number();
        assert!((value - expected).abs() <= expected.abs() * 1e-9, "{expression}: {value}, expected {expected}");
    }
}

/// Result of a division by 0 in the dialect with arrays: C's largest float, rounded down.
const DIVIDED: f64 = 1e35f32 as f64;

proptest! {
    /// Words of the language in any order, so that many of the texts compile.
    #[test]
    fn no_expression_panics(parts in proptest::collection::vec(proptest::sample::select(WORDS), 0..24), arrays: bool) {
        evaluate(parts.concat().as_bytes(), if arrays { Dialect::Arrays } else { Dialect::Texts });
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), arrays: bool) {
        evaluate(&bytes, if arrays { Dialect::Arrays } else { Dialect::Texts });
    }

    #[test]
    fn no_format_panics(text in ".{0,39}", format in "[%*0-9hldiouxXefgcs\\[\\]^a-c -]{0,20}") {
        for function in ["PRINTF(BB,A)", "PRINTF(BB,AA)", "SSCANF(AA,BB)", "READ(AA,BB)", "WRITE(BB,A)"] {
            let program = compile(function.as_bytes(), Dialect::Texts).unwrap();
            let texts = &mut [Str40::new(text.as_bytes()), Str40::new(format.as_bytes())];
            let numbers = &mut [-7.9e300];
            let text = Str40::EMPTY;
            let mut frame = Frame { numbers, texts, arrays: &mut [], size: 0, value: 0.0, text, array: &[], seed: &mut 1, stored: 0 };
            let _ = program.run(&mut frame);
        }
    }
}

const WORDS: &[&str] = &[
    "A", "B", "AA", "BB", "1", "2.5", "-1", "'ab'", "\"%d\"", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}",
    ",", ";", ":=", "?", ":", "@", "@@", "UNTIL(", "MAX(", "SSCANF(", "PRINTF(", "READ(", "WRITE(", "LEN(", "NDERIV(",
    "FITQ(", "FITMQ(", "CAT(", "FWHM(", "IX", "IXZ(", "SMOO(", ">>", "<<", "|-", "-|", "VAL", "SVAL", "AVAL", "INF",
    "NAN", "ESC(", "CRC16(", "LRC(", "=", ">",
];

fn evaluate(expression: &[u8], dialect: Dialect) {
    let Ok(program) = compile(expression, dialect) else { return };
    let texts = &mut [Str40::new(b"abc"), Str40::new(b"\\x01%5d")];
    let arrays = &mut [vec![1.0, -2.0], vec![f64::NAN, 0.5, 3.0]];
    let numbers = &mut [1.0, -3.5];
    let (value, text) = (1.0, Str40::EMPTY);
    let mut frame = Frame { numbers, texts, arrays, size: 5, value, text, array: &[2.0], seed: &mut 1, stored: 0 };
    let _ = program.run(&mut frame);
}
