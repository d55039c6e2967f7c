package api

import (
	"strconv"
	"strings"
)

// acceptWeight returns the weight that the Accept headers give to a media type, from 0 to 1. It is
// 0 if they do not name the type, and the highest one if they name it repeatedly. Ranges such as
// */* do not count. A malformed weight counts as 1.
func (r *Request) acceptWeight(mediaType string) (weight float64) {
	for _, header := range r.headers("Accept") {
		for item := range splitQuoted(header, ',') {
			name, parameters, _ := strings.Cut(item, ";")
			if strings.EqualFold(trimBlank(name), mediaType) {
				weight = max(weight, weightIn(parameters))
			}
		}
	}
	return weight
}

// weightIn returns the parameter q among the parameters of a media type, at most 1. It returns 1 if
// q is absent or malformed.
func weightIn(parameters string) float64 {
	for parameter := range splitQuoted(parameters, ';') {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(trimBlank(name), "q") {
			continue
		}
		if weight, err := strconv.ParseFloat(trimBlank(value), 64); err == nil && weight >= 0 {
			return min(weight, 1)
		}
	}
	return 1
}
