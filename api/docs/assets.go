package docs

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"sync"
)

// Asset is a file that pages of the documentation load.
type Asset struct {
	ContentType string
	Gzip        bool // Body is compressed with gzip
	Body        []byte
	// Plain returns the decompressed body, which it decompresses once. It is nil unless Gzip is
	// set.
	Plain func() ([]byte, error)
}

//go:embed docs.css
var styleCSS []byte

//go:embed reference.css
var referenceCSS []byte

//go:embed reference.js
var referenceJS []byte

// accessibilityJS adds the accessible names and roles that the viewer lacks.
//
//go:embed accessibility.js
var accessibilityJS []byte

// viewerJS is the viewer of the reference. viewer/README.md names its version and its origin.
//
//go:embed viewer/scalar.js.gz
var viewerJS []byte

// Assets maps the names of assets, which pages load from Path + "/assets/", to their content.
var Assets = map[string]Asset{
	"docs.css":         {ContentType: "text/css;charset=UTF-8", Body: styleCSS},
	"reference.css":    {ContentType: "text/css;charset=UTF-8", Body: referenceCSS},
	"reference.js":     {ContentType: "text/javascript;charset=UTF-8", Body: referenceJS},
	"accessibility.js": {ContentType: "text/javascript;charset=UTF-8", Body: accessibilityJS},
	"scalar.js":        {ContentType: "text/javascript;charset=UTF-8", Body: viewerJS, Gzip: true, Plain: plainViewer},
}

// plainViewer decompresses viewerJS.
var plainViewer = sync.OnceValues(func() ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(viewerJS))
	if err != nil {
		return nil, fmt.Errorf("docs: viewer: %w", err)
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("docs: viewer: %w", err)
	}
	return body, nil
})
