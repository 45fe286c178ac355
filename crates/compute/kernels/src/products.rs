//! Element-wise product: `y = a·b`.

use crate::level::Kind;
use crate::level::wide::{Wide, at};
use crate::{Level, Misfit};

/// Multiplies two vectors element by element with the vector instructions of a level. Neither allocates nor blocks. Each product is rounded
/// once, so all levels give the same bits.
///
/// # Errors
/// The three slices differ in length. Nothing was written.
pub fn products(level: Level, a: &[f32], b: &[f32], y: &mut [f32]) -> Result<(), Misfit> {
    Misfit::check("elements of the second vector", b.len(), a.len())?;
    Misfit::check("elements of the result", y.len(), a.len())?;
    match level.0 {
        Kind::Scalar => one_by_one(a, b, y),
        _ => at(level, Products { a, b, y }),
    }
    Ok(())
}

fn one_by_one(a: &[f32], b: &[f32], y: &mut [f32]) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        // Prevents vectorisation by the compiler.
        *y = std::hint::black_box(a * b);
    }
}

struct Products<'a> {
    a: &'a [f32],
    b: &'a [f32],
    y: &'a mut [f32],
}

impl Wide for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with<const N: usize>(self) {
        let ((ours, rest_a), (others, rest_b)) = (self.a.as_chunks::<N>(), self.b.as_chunks::<N>());
        let (to, rest) = self.y.as_chunks_mut::<N>();
        for ((to, a), b) in to.iter_mut().zip(ours).zip(others) {
            *to = std::array::from_fn(|lane| a[lane] * b[lane]);
        }
        rest.iter_mut().zip(rest_a).zip(rest_b).for_each(|((to, a), b)| *to = a * b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_rounds_each_product_once_and_refuses_vectors_of_other_lengths() {
        for length in [0, 1, 3, 16, 17, 100] {
            let a: Vec<f32> = (0..length).map(|place| place as f32 * 0.37 - 5.0).collect();
            let b: Vec<f32> = (0..length).map(|place| 1e20 / (place as f32 - 7.5)).collect();
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
            for level in Level::all() {
                let mut y = vec![9.0; length];
                products(level, &a, &b, &mut y).unwrap();
                assert_eq!(y, expected, "{level}");
            }
        }
        let mut y = [9.0; 2];
        assert_eq!(
            products(Level::best(), &[1.0; 2], &[1.0; 3], &mut y).unwrap_err().to_string(),
            "elements of the second vector: found 3, expected 2"
        );
        assert!(products(Level::best(), &[1.0; 3], &[1.0; 3], &mut y).is_err() && y == [9.0; 2]);
    }
}
