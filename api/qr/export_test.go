package qr

// PNG returns the encoder's code of a content as a PNG.
func PNG(content string) ([]byte, error) {
	s, err := encode(content)
	if err != nil {
		return nil, err
	}
	return appendPNG(nil, s.rows[:s.size]), nil
}
