//! Arrays: operators by element, and the functions of acalcout.

use super::run::{Computed, NoValue, nint, truth};
use super::{Binary, Item, Unary};

/// An array of the record's size. Statistics use its first `used` elements, which `[i,j]` and `CAT` set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lanes {
    pub(crate) values: Vec<f64>,
    used: usize,
}

impl Lanes {
    pub(super) fn new(values: Vec<f64>) -> Self {
        Self { used: values.len(), values }
    }

    /// The first elements of a slice, filled with zeros to `size`.
    pub(super) fn of_size(values: &[f64], size: usize) -> Self {
        let mut values = values[..values.len().min(size)].to_vec();
        values.resize(size, 0.0);
        Self::new(values)
    }

    /// An array of a value: a number fills all elements, NaN with zeros.
    pub(super) fn of(item: Item, size: usize) -> Self {
        match item {
            Item::Array(lanes) => lanes,
            other => {
                let value = other.number();
                Self::new(vec![if value.is_nan() { 0.0 } else { value }; size])
            }
        }
    }

    fn part(&self) -> &[f64] {
        &self.values[..self.used]
    }

    /// Replaces the used part by a function's result; the rest becomes 0.
    fn with_part(mut self, part: Vec<f64>) -> Self {
        self.values.fill(0.0);
        for (place, value) in self.values.iter_mut().zip(part) {
            *place = value;
        }
        self
    }
}

/// Applies a function to each element.
pub(super) fn map(item: &Item, f: &dyn Fn(f64) -> f64) -> Item {
    match item {
        Item::Array(lanes) => {
            Item::Array(Lanes { values: lanes.values.iter().map(|value| f(*value)).collect(), used: lanes.used })
        }
        other => Item::Number(f(other.number())),
    }
}

/// Applies a function to each pair of elements. A number is treated as an array of equal elements.
pub(super) fn zip(left: &Item, right: &Item, f: &dyn Fn(f64, f64) -> f64) -> Item {
    match (left, right) {
        (Item::Array(a), Item::Array(b)) => {
            let values = a.values.iter().zip(&b.values).map(|(a, b)| f(*a, *b)).collect();
            Item::Array(Lanes { values, used: a.used })
        }
        (Item::Array(_), number) => {
            let b = number.number();
            map(left, &|a| f(a, b))
        }
        (number, Item::Array(b)) => {
            let a = number.number();
            Item::Array(Lanes::new(b.values.iter().map(|b| f(a, *b)).collect()))
        }
        (a, b) => Item::Number(f(a.number(), b.number())),
    }
}

/// Whether any element meets a condition.
pub(super) fn any(item: &Item, is: &dyn Fn(f64) -> bool) -> bool {
    match item {
        Item::Array(lanes) => lanes.values.iter().any(|value| is(*value)),
        other => is(other.number()),
    }
}

/// `a[i,j]`, or `a{i,j}` if `in_place`: the elements from `first` to `last`. A negative index counts from the end.
pub(super) fn range(lanes: &Lanes, first: f64, last: f64, in_place: bool) -> Lanes {
    let size = lanes.values.len();
    let place = |index: f64| {
        let index = i64::from(base::text::to_i32(index));
        if index < 0 { index + size as i64 } else { index }
    };
    let first = place(first).clamp(0, size as i64) as usize;
    // One after the last element.
    let end = (place(last) + 1).clamp(0, size as i64) as usize;
    let part = lanes.values.get(first..end).unwrap_or(&[]);
    let mut values = vec![0.0; size];
    let start = if in_place { first } else { 0 };
    values[start..start + part.len()].copy_from_slice(part);
    Lanes { values, used: if in_place { end } else { part.len() } }
}

/// Shifts the elements by a number of places, to higher indices if it is positive. A fraction interpolates.
pub(super) fn shift(lanes: &Lanes, by: f64) -> Lanes {
    let size = lanes.values.len();
    let whole = nint(by);
    let values = &lanes.values;
    let source = |index: usize| {
        let from = index as f64 - whole;
        if from >= 0.0 && from < size as f64 { values[from as usize] } else { 0.0 }
    };
    let mut moved: Vec<f64> = (0..size).map(source).collect();
    let rest = by - whole;
    let fraction = rest.abs();
    if fraction > 1e-9 && size > 1 {
        if rest < 0.0 {
            (0..size - 1).for_each(|at| moved[at] += fraction * (moved[at + 1] - moved[at]));
            moved[size - 1] += fraction * (moved[size - 1] - moved[size - 2]);
        } else {
            (1..size).rev().for_each(|at| moved[at] += fraction * (moved[at - 1] - moved[at]));
            moved[0] += fraction * (moved[0] - moved[1]);
        }
    }
    Lanes { values: moved, used: lanes.used }
}

/// Functions of one array.
pub(super) fn unary(code: Unary, operand: Item, size: usize) -> Computed {
    let lanes = match (code, operand) {
        (Unary::ToArray, item) => return Ok(Item::Array(Lanes::of(item, size))),
        (Unary::OnlyNegative, item) => return Ok(map(&item, &|value| value.max(0.0))),
        (Unary::OnlyPositive, item) => return Ok(map(&item, &|value| value.min(0.0))),
        (_, Item::Array(lanes)) => lanes,
        (code, number) => return Ok(Item::Number(of_number(code, number.number()))),
    };
    let part = lanes.part();
    let index = |found: Option<usize>| found.map_or(-1.0, |index| index as f64);
    Ok(Item::Number(match code {
        Unary::Sum => part.iter().sum(),
        Unary::Average => mean(part),
        Unary::Deviation => {
            let center = mean(part);
            let squares: f64 = part.iter().map(|value| (value - center).powi(2)).sum();
            (squares / (part.len().max(2) - 1) as f64).sqrt()
        }
        Unary::ArrayMax => part.get(first_best(part, |new, best| new > best)).copied().unwrap_or(0.0),
        Unary::ArrayMin => part.get(first_best(part, |new, best| new < best)).copied().unwrap_or(0.0),
        Unary::IndexOfMax => first_best(part, |new, best| new > best) as f64,
        Unary::IndexOfMin => first_best(part, |new, best| new < best) as f64,
        Unary::IndexOfNonZero => index(part.iter().position(|value| value.abs() > 1e-9)),
        Unary::IndexOfZero => zero_crossing(part),
        Unary::HalfWidth => half_width(part),
        Unary::Smooth => {
            let smooth = smoothed(part.to_vec());
            let mut lanes = lanes;
            lanes.values[..smooth.len()].copy_from_slice(&smooth);
            return Ok(Item::Array(lanes));
        }
        Unary::Derivative => return derivative(lanes, 2),
        Unary::FitPoly => return fitted(lanes, None).map(|(lanes, _)| Item::Array(lanes)),
        _ => {
            // CUM adds up all elements, also unused ones.
            let mut lanes = lanes;
            let mut sum = 0.0;
            for value in &mut lanes.values {
                sum += *value;
                *value = sum;
            }
            return Ok(Item::Array(lanes));
        }
    }))
}

/// The functions of one array for a number.
fn of_number(code: Unary, value: f64) -> f64 {
    match code {
        Unary::IndexOfMax | Unary::IndexOfMin | Unary::Deviation | Unary::HalfWidth => 0.0,
        Unary::Derivative | Unary::FitPoly => 0.0,
        Unary::IndexOfZero => truth(value.abs() < 1e-9) - 1.0,
        Unary::IndexOfNonZero => truth(value.abs() > 1e-9) - 1.0,
        _ => value,
    }
}

/// Functions of an array and another value.
pub(super) fn binary(code: Binary, left: Item, right: Item, size: usize) -> Computed {
    Ok(Item::Array(match code {
        Binary::Cat => {
            let mut lanes = Lanes::of(left, size);
            let added = match &right {
                Item::Array(more) => more.part().to_vec(),
                other => vec![other.number()],
            };
            for value in added {
                let Some(place) = lanes.values.get_mut(lanes.used) else { break };
                *place = value;
                lanes.used += 1;
            }
            lanes
        }
        Binary::NSmooth => {
            let lanes = Lanes::of(left, size);
            let rounds = right.number().clamp(0.0, SMOOTHINGS) as usize;
            let smooth = (0..rounds).fold(lanes.part().to_vec(), |values, _| smoothed(values));
            lanes.with_part(smooth)
        }
        Binary::NDerivative => {
            let lanes = Lanes::of(left, size);
            let half = (lanes.used.max(1) - 1) / 2;
            return derivative(lanes, (right.number().max(0.0) as usize).min(half));
        }
        _ => {
            let mask = Lanes::of(right, size);
            fitted(Lanes::of(left, size), Some(&mask))?.0
        }
    }))
}

/// Maximum number of rounds of `NSMOO`. More change nothing that matters.
const SMOOTHINGS: f64 = 1_000.0;

/// `FITQ(y, …)` and `FITMQ(y, mask, …)`: the fitted parabola, and its coefficients of 1, x and x².
pub(super) fn fit(is_masked: bool, items: &[Item], size: usize) -> Computed<(Lanes, [f64; 3])> {
    let array = |index: usize| items.get(index).cloned().map(|item| Lanes::of(item, size)).ok_or(NoValue);
    if is_masked { fitted(array(0)?, Some(&array(1)?)) } else { fitted(array(0)?, None) }
}

fn fitted(lanes: Lanes, mask: Option<&Lanes>) -> Computed<(Lanes, [f64; 3])> {
    let [c, b, a] = parabola(lanes.part(), mask.map(|mask| mask.values.as_slice()))?;
    let part = (0..lanes.used).map(|x| x as f64).map(|x| c + b * x + a * x * x).collect();
    Ok((lanes.with_part(part), [c, b, a]))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Index of the first element that no other is better than.
fn first_best(values: &[f64], better: impl Fn(f64, f64) -> bool) -> usize {
    (1..values.len()).fold(0, |best, at| if better(values[at], values[best]) { at } else { best })
}

/// Interpolated index of the first change of sign; −1 if there is none.
fn zero_crossing(values: &[f64]) -> f64 {
    let Some(first) = values.first().map(|value| *value > 0.0) else { return -1.0 };
    match values.iter().position(|value| (*value > 0.0) != first) {
        Some(at) => (at - 1) as f64 + values[at - 1].abs() / (values[at - 1] - values[at]).abs(),
        None => -1.0,
    }
}

/// Full width at half of the maximum above the minimum, in elements.
fn half_width(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let top = first_best(values, |new, best| new > best);
    let lowest = values[first_best(values, |new, best| new < best)];
    let half = lowest + (values[top] - lowest) / 2.0;
    let right = (top + 1..values.len()).find(|at| values[*at] < half);
    let right = right.map_or((values.len() - 1) as f64, |at| {
        (at - 1) as f64 + (half - values[at - 1]) / (values[at] - values[at - 1])
    });
    let left = (0..top).rev().find(|at| values[*at] < half);
    let left = left.map_or(0.0, |at| at as f64 + (half - values[at]) / (values[at + 1] - values[at]));
    right - left
}

/// Binomial smoothing over five points. The two points at each end stay.
fn smoothed(values: Vec<f64>) -> Vec<f64> {
    let inner = values.windows(5).map(|w| (w[0] + w[4]) / 16.0 + (w[1] + w[3]) / 4.0 + 3.0 * w[2] / 8.0);
    let mut smooth = values.clone();
    smooth.iter_mut().skip(2).zip(inner).for_each(|(place, value)| *place = value);
    smooth
}

/// Derivative from parabolas through each point and `half` points on both sides.
fn derivative(lanes: Lanes, half: usize) -> Computed {
    let values = lanes.part();
    let span = 2 * half + 1;
    if values.len() < span || half == 0 {
        return Err(NoValue);
    }
    let mut slopes = Vec::with_capacity(values.len());
    for at in 0..values.len() {
        let start = at.saturating_sub(half).min(values.len() - span);
        // The inner points use their own parabola, those at the ends the outermost.
        let [_, b, a] = parabola(&values[start..start + span], None)?;
        slopes.push(b + 2.0 * a * (at - start) as f64);
    }
    Ok(Item::Array(lanes.with_part(slopes)))
}

/// Coefficients of 1, x and x² of the parabola that fits the values at x = 0, 1, 2, … best. A mask excludes points where it is
/// not positive.
fn parabola(values: &[f64], mask: Option<&[f64]>) -> Computed<[f64; 3]> {
    const SMALL: f64 = 1e-8;
    if values.len() < 3 {
        return Err(NoValue);
    }
    let (mut y, mut x) = ([0.0; 3], [0.0; 5]);
    for (at, value) in values.iter().enumerate() {
        if mask.is_none_or(|mask| mask.get(at).is_some_and(|weight| *weight > SMALL)) {
            let mut power = 1.0;
            for degree in 0..5 {
                x[degree] += power;
                if degree < 3 {
                    y[degree] += value * power;
                }
                power *= at as f64;
            }
        }
    }
    // Cramer's rule for the normal equations.
    let column = |at: usize, new: bool| if new { y } else { [x[at], x[at + 1], x[at + 2]] };
    let determinant = |replaced: usize| {
        let [a, b, c] = [0, 1, 2].map(|at| column(at, at == replaced));
        a[0] * (b[1] * c[2] - c[1] * b[2]) - b[0] * (a[1] * c[2] - c[1] * a[2]) + c[0] * (a[1] * b[2] - b[1] * a[2])
    };
    let whole = determinant(3);
    if whole.abs() < SMALL {
        return Err(NoValue);
    }
    Ok([0, 1, 2].map(|at| determinant(at) / whole))
}
