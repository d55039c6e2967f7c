package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// ScanRows replaces the elements of the slice that dest points to with the rows, and closes the
// rows. The elements are structs or pointers to structs, which ScanRows fills by column name as Bun
// does. Unlike Bun, it looks up the field of each column once, not once for each row. A column
// without a field is an error. ScanRows leaves elements of other types to Bun.
func ScanRows(ctx context.Context, db *bun.DB, rows *sql.Rows, dest any) (err error) {
	slice := reflect.ValueOf(dest).Elem()
	element := slice.Type().Elem()
	isPointer := element.Kind() == reflect.Pointer
	if isPointer {
		element = element.Elem()
	}
	if !isStruct(reflect.New(element).Interface()) {
		return errors.Join(db.ScanRows(ctx, rows, dest), rows.Close())
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	fields, targets, err := fieldsOf(db.Table(element), rows)
	if err != nil {
		return err
	}
	slice.SetLen(0)
	for rows.Next() {
		n := slice.Len()
		slice.Grow(1)
		slice.SetLen(n + 1)
		row := slice.Index(n)
		if isPointer {
			row.Set(reflect.New(element))
			row = row.Elem()
		} else {
			row.SetZero()
		}
		for i := range fields {
			fields[i].row = row
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fieldTarget scans one column into its field of the current row. It implements sql.Scanner.
type fieldTarget struct {
	field *schema.Field
	row   reflect.Value
}

func (t *fieldTarget) Scan(value any) error { return t.field.ScanValue(t.row, value) }

// fieldsOf returns a target for each column of the rows, and pointers to the targets as arguments
// of rows.Scan.
func fieldsOf(table *schema.Table, rows *sql.Rows) ([]fieldTarget, []any, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, nil, err
	}
	fields, targets := make([]fieldTarget, len(columns)), make([]any, len(columns))
	for i, column := range columns {
		field := table.LookupField(column)
		if field == nil {
			return nil, nil, fmt.Errorf("postgres: %s has no field for the column %q", table.TypeName, column)
		}
		fields[i].field, targets[i] = field, &fields[i]
	}
	return fields, targets, nil
}
