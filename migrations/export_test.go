package migrations

// UpFrom is Up for the migrations of other files.
var UpFrom = up
