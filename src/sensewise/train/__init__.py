"""Everything that is trained, fitted or searched: one loop, one recipe per thing. Nothing is drawn or judged here."""
