"""What came of a cell, for machines (`report`), for people in a browser (`html`) and on a terminal (`text`)."""
