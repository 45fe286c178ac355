//! Vectors multiplied element by element: plain code, the compiler's vectors, each level's vectors.

use super::Args;
use crate::{Failed, Progress};
use kernels::Level;
use report::{Figure, Good, Row, Table};
use std::cell::Cell;
use std::hint::black_box;
use sys::clock::mono_now;

/// Numbers of each vector. Three vectors of 4 KiB fit into the first cache, three of 4 MiB only into the last one, if
/// at all.
const LENGTHS: [(usize, &str); 2] = [(1024, "3 x 4 KiB"), (1 << 20, "3 x 4 MiB")];
/// Numbers that a timed call processes.
const NUMBERS: usize = 4 << 20;

#[inline(never)]
fn apart(a: &[f32], b: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a * b);
}

/// The same if the three may overlap in memory, like pointers in C.
#[inline(never)]
fn perhaps_together(a: &[Cell<f32>], b: &[Cell<f32>], y: &[Cell<f32>]) {
    y.iter().zip(a).zip(b).for_each(|((y, a), b)| y.set(a.get() * b.get()));
}

/// Products of a timed call.
const PRODUCTS: usize = 1 << 16;

/// The published `vmulr`: `r` does not overlap with the others, as with C's `restrict`.
#[inline(never)]
fn vmulr(r: &mut [f32; 4], a: &[f32; 4], b: &[f32; 4]) {
    for i in 0..4 {
        r[i] = a[i] * b[i];
    }
}

/// The published `vmul`: the three may overlap.
#[inline(never)]
fn vmul(r: &[Cell<f32>; 4], a: &[Cell<f32>; 4], b: &[Cell<f32>; 4]) {
    for i in 0..4 {
        r[i].set(a[i].get() * b[i].get());
    }
}

/// The published listing: a call that multiplies four floats.
pub(super) fn listing(args: &Args) -> Table {
    let (mut r, a, b) = ([0.0f32; 4], [1.5f32; 4], [0.5f32; 4]);
    let cells = [[0.0f32; 4], a, b].map(|values| values.map(Cell::new));
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    let each = |call: &mut dyn FnMut()| {
        let begun = mono_now();
        call();
        (mono_now() - begun).0 as f64 / PRODUCTS as f64
    };
    for round in 0..=args.rounds {
        let now = [
            each(&mut || {
                for _ in 0..PRODUCTS {
                    vmulr(black_box(&mut r), black_box(&a), black_box(&b));
                }
            }),
            each(&mut || {
                let [r, a, b] = &cells;
                for _ in 0..PRODUCTS {
                    vmul(black_box(r), black_box(a), black_box(b));
                }
            }),
        ];
        // The first round warms the caches.
        if round > 0 {
            apart.push(now[0]);
            together.push(now[1]);
        }
    }
    let row = Row::samples("a call", "ns", apart).good(Good::Low).against(Figure::median(together));
    Table::new("product of four floats, the published listing").columns("arguments apart", "may overlap").row(row)
}

pub(super) fn measure(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let levels: Vec<Level> = Level::all().collect();
    let mut table = Table::new("vectors multiplied element by element on one CPU: f32 read and written")
        .columns("tahti", "plain code");
    for (length, called) in LENGTHS {
        let (mut a, mut b, mut y) = (vec![0.5f32; length], vec![1.5f32; length], vec![0.0f32; length]);
        let mut rates = vec![Vec::new(); levels.len() + 2];
        for round in 0..=args.rounds {
            progress.at(round, args.rounds + 1, called);
            let rate = |call: &mut dyn FnMut()| {
                let times = NUMBERS / length;
                let begun = mono_now();
                (0..times).for_each(|_| call());
                (times * length * 12) as f64 / (mono_now() - begun).0.max(1) as f64
            };
            let mut now: Vec<f64> = levels
                .iter()
                .map(|level| {
                    rate(&mut || {
                        kernels::products(*level, black_box(&a), black_box(&b), black_box(&mut y))
                            .expect("equal lengths")
                    })
                })
                .collect();
            now.push(rate(&mut || {
                let of = |memory| Cell::from_mut(memory).as_slice_of_cells();
                perhaps_together(of(black_box(&mut a[..])), of(black_box(&mut b[..])), of(black_box(&mut y[..])));
            }));
            now.push(rate(&mut || apart(black_box(&a), black_box(&b), black_box(&mut y))));
            // The first round warms the caches.
            if round > 0 {
                rates.iter_mut().zip(now).for_each(|(rates, now)| rates.push(now));
            }
        }
        let plain = Figure::median(rates[0].clone());
        let names = levels.iter().map(|level| format!("explicit, {level}"));
        let names = names.chain(["compiler, memory may overlap", "compiler, memory apart"].map(String::from));
        for (name, rates) in names.zip(rates) {
            table = table
                .row(Row::samples(format!("{called}, {name}"), "GB/s", rates).good(Good::High).against(plain.clone()));
        }
    }
    Ok(table)
}
