module partnerbilling/api/client

go 1.26
