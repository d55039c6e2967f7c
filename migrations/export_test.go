package migrations

// UpWithin is UpFrom with another answerTimeout.
var UpWithin = upFrom
