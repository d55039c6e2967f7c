package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// The client is a module of its own, and repeats the service's limit.
func TestMaxBatchRowsIsThatOfTheService(t *testing.T) {
	t.Parallel()
	if client.MaxBatchRows != models.MaxBatchRows {
		t.Errorf("%d rows, want %d", client.MaxBatchRows, models.MaxBatchRows)
	}
}

const header = "customerReference,rowReference,amount\n"

// Files as spreadsheets and other programs write them.
func TestReadRows(t *testing.T) {
	t.Parallel()
	want := []client.Row{
		{CustomerReference: "ada", RowReference: "r 1", Amount: 1250},
		{CustomerReference: "léa, ltd", RowReference: "r\"2", Amount: 5},
	}
	for name, c := range map[string]struct {
		file   string
		format rowFormat
	}{
		"plain":         {header + "ada,r 1,1250\n\"léa, ltd\",\"r\"\"2\",5\n", rowFormat{}},
		"Excel":         {"\ufeffCustomer Reference;Row Reference;Amount\r\nada;r 1;1250\r\nléa, ltd;\"r\"\"2\";5\r\n", rowFormat{}},
		"tabs":          {"CUSTOMER_REF\tROW\tAMOUNT\nada\tr 1\t1250\nléa, ltd\t\"r\"\"2\"\t5", rowFormat{}},
		"other order":   {"note,amount,row-reference,customer\nx,1250,r 1,ada\n,5,\"r\"\"2\",\"léa, ltd\"\n", rowFormat{}},
		"empty lines":   {header + "\nada,r 1,1250\n\n\"léa, ltd\",\"r\"\"2\",5\n\n", rowFormat{}},
		"decimals":      {header + "ada,r 1,12.5\n\"léa, ltd\",\"r\"\"2\",0.05\n", rowFormat{Decimal: true}},
		"comma":         {"customer;row;amount\nada;r 1;12,50\nléa, ltd;\"r\"\"2\";0,05\n", rowFormat{Decimal: true}},
		"to be trimmed": {header + " ada ,r 1\t, 1250\n\" léa, ltd\",\"r\"\"2\",5\n", rowFormat{Trim: true}},
	} {
		rows, err := readRows(strings.NewReader(c.file), c.format)
		if diff := cmp.Diff(want, rows); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// A file with faults is refused as a whole, and each fault is named with its line.
func TestReadRowsNamesEveryFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file   string
		format rowFormat
		want   []string
	}{
		"empty":         {"", rowFormat{}, []string{"the file is empty"}},
		"only a header": {header, rowFormat{}, []string{"the file has no rows"}},
		"UTF-16":        {"\xff\xfec\x00", rowFormat{}, []string{"the file is UTF-16"}},
		"a spreadsheet": {"PK\x03\x04", rowFormat{}, []string{"the file is a spreadsheet"}},
		"Latin-1": {header + "l\xe9a,r,5\na,r\xff2,5\n", rowFormat{}, []string{
			"line 2: the customerReference is not UTF-8", "line 3: the rowReference is not UTF-8",
		}},
		"missing columns": {"customer,total\na,5\n", rowFormat{}, []string{"line 1: the column rowReference is missing", "line 1: the column amount is missing"}},
		"column twice":    {"customer,customerReference,row,amount\na,a,r,5\n", rowFormat{}, []string{"line 1: two columns are the customerReference"}},
		"too few cells":   {header + "a,r\n", rowFormat{}, []string{"line 2: it has 2 columns, the header has 3"}},
		"open quote":      {header + "a,\"r,5\n", rowFormat{}, []string{"line 2"}},
		"amounts": {header + "a,1,12.50\na,2,\na,3,-5\na,4,0\na,5,1e3\na,6,99999999999999999999\n", rowFormat{}, []string{
			`line 2: the amount "12.50" is not a whole number`, `line 3: the amount ""`, `line 4: the amount "-5"`,
			`line 5: the amount "0"`, `line 6: the amount "1e3"`, "line 7: the amount",
		}},
		"decimals": {header + "a,1,1.234\na,2,1 000.00\na,3,.\na,4,1.000,50\na,5,-1.00\na,6,0.00\n", rowFormat{Decimal: true}, []string{
			`line 2: the amount "1.234" is not a number`, "line 3", "line 4", "line 5", "line 6", "line 7",
		}},
		"references": {header + ",1,5\na,,5\na,1,5\n", rowFormat{}, []string{
			"line 2: the customerReference is empty", "line 3: the rowReference is empty",
			"line 4: the rowReference is that of line 2",
		}},
	} {
		rows, err := readRows(strings.NewReader(c.file), c.format)
		if err == nil || rows != nil {
			t.Errorf("%s: %v", name, rows)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name %q", name, err, want)
			}
		}
		if lines := strings.Count(err.Error(), "\n") + 1; lines != len(c.want) {
			t.Errorf("%s: %d faults, want %d: %v", name, lines, len(c.want), err)
		}
		refusesFile(t, c.file, c.format, err)
	}
	_, err := readRows(strings.NewReader(header+strings.Repeat("a,r,x\n", 100)), rowFormat{})
	if err == nil || !strings.HasSuffix(err.Error(), "and 179 more faults") {
		t.Errorf("100 lines: %v", err)
	}
}

// refusesFile runs submit with a faulty file, for a service that does not exist.
func refusesFile(t *testing.T, content string, format rowFormat, faults error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"submit", "rent", file}
	if format.Decimal {
		args = append(args, "--decimal")
	}
	r := svcctl(t.Context(), "http://127.0.0.1:1", args...)
	want := file + ":\n" + printableLines(faults.Error()) + "\n"
	if r.code != exitRefused || r.out != "" || !strings.HasSuffix(r.errOut, want) {
		t.Errorf("submit of %q: %+v", content, r)
	}
}

func FuzzReadRows(f *testing.F) {
	f.Add(header+"a,r,5\n", false)
	f.Add("\ufeffcustomer;row;amount\r\nx;y;12,50\r\n", true)
	f.Fuzz(func(t *testing.T, file string, decimal bool) {
		rows, err := readRows(strings.NewReader(file), rowFormat{Decimal: decimal})
		if (err == nil) == (len(rows) == 0) {
			t.Errorf("%d rows, %v", len(rows), err)
		}
		seen := map[string]bool{}
		for _, row := range rows {
			if row.Amount < 1 || row.CustomerReference == "" || seen[row.RowReference] {
				t.Errorf("%+v", row)
			}
			seen[row.RowReference] = true
		}
	})
}

// A file of 2,500 rows becomes three batches, which a second run after an interruption submits
// under the same references. The result file has every row.
func TestSubmitCutsAndResumes(t *testing.T) {
	t.Parallel()
	submitted, refuse := map[string]client.Batch{}, true
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","expires_in":3600}`))
	})
	mux.HandleFunc("POST /billing/sites/site/batches", func(w http.ResponseWriter, r *http.Request) {
		var batch client.Batch
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			t.Error(err)
		}
		if refuse && len(submitted) == 2 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if before, ok := submitted[batch.BatchReference]; ok && !cmp.Equal(before, batch) {
			t.Errorf("%s was submitted with other rows", batch.BatchReference)
		}
		submitted[batch.BatchReference] = batch
		_, _ = fmt.Fprintf(w, `{"data":{"batchReference":%q}}`, batch.BatchReference)
	})
	mux.HandleFunc("GET /billing/sites/site/batches/{reference}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := submitted[r.PathValue("reference")]; !ok {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(
				`{"errors":[{"code":"urn:svc:platform:billing:error:batches:batch-not-found"}],"traceId":"t"}`))
			return
		}
		status := client.BatchStatus{BatchReference: r.PathValue("reference"), State: client.StateSettled}
		for _, row := range submitted[status.BatchReference].Rows {
			status.Rows = append(status.Rows, client.RowStatus{
				RowReference: row.RowReference, Amount: row.Amount, Outcome: client.OutcomeSucceeded,
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": status})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	file := header
	for n := range 2500 {
		file += fmt.Sprintf("c%d,r%d,%d\n", n, n, n+1)
	}
	dir := t.TempDir()
	name, result := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "result.csv")
	if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	r := svcctl(t.Context(), server.URL, "submit", "rent", name, "-o", "json")
	if r.code != exitAuthentication || len(submitted) != 2 ||
		!json.Valid([]byte(r.out)) || !strings.Contains(r.out, "rent/2") {
		t.Fatalf("%d batches, %+v", len(submitted), r)
	}
	refuse = false
	if r := svcctl(t.Context(), server.URL, "submit", "rent", name, "--result", result); r.code != 0 {
		t.Fatal(r)
	}
	if len(submitted) != 3 || len(submitted["rent/1"].Rows) != 1000 || len(submitted["rent/3"].Rows) != 500 {
		t.Errorf("%d batches", len(submitted))
	}
	// A result file that cannot be written loses no other output.
	r = svcctl(t.Context(), server.URL, "submit", "rent", name, "--result", filepath.Join(dir, "none", "result.csv"))
	if r.code != exitFailure || !strings.Contains(r.out, "rent/3") || !strings.Contains(r.errOut, "none") {
		t.Errorf("%+v", r)
	}
	// A file that has shrunk to one batch would repeat rows under another reference.
	if err := os.WriteFile(name, []byte(header+"c0,r0,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := svcctl(t.Context(), server.URL, "submit", "rent", name); r.code != exitRefused || len(submitted) != 3 ||
		!strings.Contains(r.errOut, "rent/1 was submitted before") {
		t.Errorf("%d batches, %+v", len(submitted), r)
	}
	written, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(written)), "\r\n")
	if len(lines) != 2501 || lines[2500] != "rent/3,r2499,,2500,succeeded" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}
