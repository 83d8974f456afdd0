"""Each behaviour that the documents behind the product ask for, one test each, at exact times."""
